"""Answer a question with sources, by LangChain: `python examples/rag.py runs/quickstart "how do I open a zip file"`.

It needs `pip install 'rayhier[langchain]'`. The model here only repeats its prompt. Put your chat model in its place.
"""

import sys

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from rayhier.adapters.langchain import RayhierRetriever

PROMPT = """Answer from these documents only, and name the ids that you used.

{documents}

Question: {question}"""


def with_ids(documents: list[Document]) -> str:
    return "\n\n".join(f"[{document.id}] {document.page_content}" for document in documents)


def chat_model(prompt: PromptValue) -> BaseMessage:
    """Stand for a chat model, for instance ChatOpenAI() or ChatOllama(model=…)."""
    return AIMessage(prompt.to_messages()[-1].content)


if len(sys.argv) != 3:
    sys.exit(__doc__)
workdir, question = sys.argv[1:]
retriever = RayhierRetriever(index=workdir, k=3)
chain = (
    {"documents": retriever | with_ids, "question": RunnablePassthrough()}
    | ChatPromptTemplate.from_template(PROMPT)
    | RunnableLambda(chat_model)
    | StrOutputParser()
)
print(chain.invoke(question))
