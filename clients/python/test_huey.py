"""huey: its queue in a list or a sorted set, its results in a hash or in strings.

Absent: tasks with a time (`delay`, `eta`, periodic ones), whose schedule huey reads by a script.
PANDO_PORT names the port of a running server on 127.0.0.1.
"""

import logging
import os
import threading
import unittest

import huey
from huey.exceptions import TaskException

# Of tasks that are meant to fail.
logging.getLogger("huey").setLevel(logging.CRITICAL + 1)

ADDRESS = {"host": "127.0.0.1", "port": int(os.environ["PANDO_PORT"])}


class Tasks:
    """The suite; run once for each kind of storage by the classes below."""

    options = {}

    def setUp(self):
        name = f"{type(self).__name__}_{self._testMethodName}"
        self.huey = self.kind(name, **self.options, **ADDRESS)
        self.addCleanup(self.huey.storage.conn.close)
        self.huey.storage.flush_all()
        self.add = self.huey.task()(lambda first, second: first + second)

    def work(self, count=1):
        """Waits for so many tasks, one after the other, and executes each."""
        for _ in range(count):
            self.huey.execute(self.huey.dequeue())

    def test_tasks_run_and_keep_their_results(self):
        results = [self.add(number, 1) for number in range(30)]
        self.assertEqual(self.huey.pending_count(), 30)
        self.assertIsNone(results[0].get())
        self.work(30)
        self.assertEqual([result.get() for result in results], list(range(1, 31)))
        self.assertEqual(self.huey.pending_count(), 0)

    def test_workers_divide_the_tasks_among_them(self):
        results = [self.add(number, number) for number in range(60)]
        workers = [threading.Thread(target=self.work, args=[20]) for _ in range(3)]
        for worker in workers:
            worker.start()
        sums = [result.get(blocking=True, timeout=60) for result in results]
        self.assertEqual(sums, [2 * number for number in range(60)])
        for worker in workers:
            worker.join()

    def test_a_revoked_task_does_not_run(self):
        result = self.add(1, 2)
        result.revoke()
        self.assertTrue(result.is_revoked())
        self.work()
        self.assertIsNone(result.get())
        result.restore()
        self.assertFalse(result.is_revoked())

    def test_a_failed_task_tells_why(self):
        @self.huey.task()
        def divide(first, second):
            return first / second

        result = divide(1, 0)
        self.work()
        with self.assertRaisesRegex(TaskException, "ZeroDivisionError"):
            result.get()

    def test_tasks_in_a_pipeline_follow_each_other(self):
        result = self.huey.enqueue(self.add.s(1, 2).then(self.add, 3).then(self.add, 4))
        self.work(3)
        self.assertEqual([part.get() for part in result], [3, 6, 10])

    def test_a_lock_keeps_others_out(self):
        lock = self.huey.lock_task("report")
        with lock:
            self.assertTrue(lock.is_locked())
            with self.assertRaises(huey.exceptions.TaskLockedException):
                self.huey.lock_task("report").__enter__()
        self.assertFalse(lock.is_locked())


class InHash(Tasks, unittest.TestCase):
    kind = huey.RedisHuey
    options = {"notify_result": True}


class InStrings(Tasks, unittest.TestCase):
    kind = huey.RedisExpireHuey


class ByPriority(Tasks, unittest.TestCase):
    kind = huey.PriorityRedisHuey

    def test_the_most_urgent_comes_first(self):
        for priority in [1, 5, 3, 5]:
            self.huey.enqueue(self.add.s(priority, 0, priority=priority))
        order = [self.huey.dequeue().args[0] for _ in range(4)]
        self.assertEqual(order, [5, 5, 3, 1])


if __name__ == "__main__":
    unittest.main()
