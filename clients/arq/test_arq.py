"""arq: its queue in a sorted set, its jobs and results in strings, taken under WATCH.

PANDO_PORT names the port of a running server on 127.0.0.1.
"""

import asyncio
import logging
import os
import unittest
from datetime import timedelta

import arq
from arq.connections import RedisSettings, create_pool
from arq.jobs import JobStatus
from arq.worker import Worker

# Of jobs that are meant to fail.
logging.getLogger("arq").setLevel(logging.CRITICAL + 1)

SETTINGS = RedisSettings(host="127.0.0.1", port=int(os.environ["PANDO_PORT"]))


async def add(_context, first, second):
    return first + second


async def fail_twice(context):
    if context["job_try"] < 3:
        raise arq.Retry(defer=0)
    return context["job_try"]


async def fail(_context):
    raise ValueError("not today")


class Arq(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.name = f"arq:{self._testMethodName}"
        self.pool = await create_pool(SETTINGS, default_queue_name=self.name)

    async def asyncTearDown(self):
        await self.pool.aclose()

    async def work(self):
        worker = Worker(
            [add, fail_twice, fail],
            redis_settings=SETTINGS,
            queue_name=self.name,
            burst=True,
            poll_delay=0.01,
            handle_signals=False,
        )
        try:
            await worker.main()
        finally:
            await worker.close()
        return worker

    async def test_jobs_run_and_keep_their_results(self):
        queued = [await self.pool.enqueue_job("add", number, 1) for number in range(20)]
        self.assertEqual(await queued[0].status(), JobStatus.queued)
        worker = await self.work()
        self.assertEqual([await job.result(timeout=60) for job in queued], list(range(1, 21)))
        self.assertEqual((worker.jobs_complete, worker.jobs_failed), (20, 0))
        self.assertEqual(await self.pool.queued_jobs(queue_name=self.name), [])
        self.assertGreaterEqual(len(await self.pool.all_job_results()), 20)

    async def test_a_job_of_a_name_is_queued_once(self):
        job = await self.pool.enqueue_job("add", 1, 2, _job_id=self.name)
        self.assertIsNone(await self.pool.enqueue_job("add", 3, 4, _job_id=self.name))
        await self.work()
        self.assertEqual(await job.result(timeout=60), 3)

    async def test_a_failed_job_is_retried(self):
        retried = await self.pool.enqueue_job("fail_twice")
        failed = await self.pool.enqueue_job("fail")
        worker = await self.work()
        self.assertEqual(await retried.result(timeout=60), 3)
        with self.assertRaisesRegex(ValueError, "not today"):
            await failed.result(timeout=60)
        self.assertEqual(worker.jobs_retried, 2)

    async def test_two_workers_run_a_job_once(self):
        queued = [await self.pool.enqueue_job("add", number, 1) for number in range(40)]
        workers = await asyncio.gather(self.work(), self.work())
        self.assertEqual(sum(worker.jobs_complete for worker in workers), 40)
        self.assertEqual([await job.result(timeout=60) for job in queued], list(range(1, 41)))

    async def test_a_deferred_job_waits(self):
        job = await self.pool.enqueue_job("add", 1, 2, _defer_by=timedelta(hours=1))
        self.assertEqual(await job.status(), JobStatus.deferred)
        self.assertEqual(len(await self.pool.queued_jobs(queue_name=self.name)), 1)


if __name__ == "__main__":
    unittest.main()
