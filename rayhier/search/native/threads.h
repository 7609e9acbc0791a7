// Work on queries by several threads, which Ctrl-C ends.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include <pybind11/pybind11.h>

// Calls `one(number, scratch)` for each number from 0 to before `count`, without the GIL. Each thread has a scratch.
template <class Scratch, class One> void on_threads(std::int64_t count, int threads, One one) {
    pybind11::gil_scoped_release release;
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> stopped{false};
    std::vector<std::exception_ptr> failed(threads);
    const auto work = [&](int thread) {
        try {
            Scratch scratch;
            int done = 0;
            for (std::int64_t number; !stopped && (number = next++) < count;) {
                one(number, scratch);
                if (!thread && ++done % 64 == 0) {  // Ctrl-C
                    pybind11::gil_scoped_acquire acquire;
                    if (PyErr_CheckSignals()) throw pybind11::error_already_set();
                }
            }
        } catch (...) {
            failed[thread] = std::current_exception();
            stopped = true;
        }
    };
    std::vector<std::thread> others;
    try {
        for (int thread = 1; thread < std::min<std::int64_t>(threads, count); ++thread) others.emplace_back(work, thread);
    } catch (const std::system_error &) {  // no further threads here: the others do the work
    }
    work(0);
    for (auto &other : others) other.join();
    for (const auto &error : failed)
        if (error) std::rethrow_exception(error);
}
