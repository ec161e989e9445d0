"""rq: jobs in lists, their state in hashes, registries in sorted sets, results in streams.

Absent, since rq runs scripts for it: unique jobs, the scheduler, `Queue.empty`, rate limits; and commands to
workers, which come over channels.
PANDO_PORT names the port of a running server on 127.0.0.1.
"""

import os
import threading
import unittest
from datetime import timedelta

import redis
import rq
from rq.intermediate_queue import IntermediateQueue
from rq.job import JobStatus
from rq.registry import FailedJobRegistry, FinishedJobRegistry, ScheduledJobRegistry

import jobs

PORT = int(os.environ["PANDO_PORT"])


class Worker(rq.SimpleWorker):
    """Takes no commands."""

    def subscribe(self):
        pass


class Rq(unittest.TestCase):
    def setUp(self):
        self.client = redis.Redis(host="127.0.0.1", port=PORT)
        self.queue = rq.Queue(self.id().rsplit(".", 1)[-1], connection=self.client)
        self.addCleanup(self.client.close)

    def work(self, *queues):
        worker = Worker(list(queues) or [self.queue], connection=self.client)
        worker.work(burst=True, logging_level="CRITICAL")

    def test_jobs_run_and_keep_their_results(self):
        queued = [self.queue.enqueue(jobs.add, number, 1) for number in range(20)]
        self.assertEqual(self.queue.job_ids, [job.id for job in queued])
        first = self.queue.enqueue(jobs.add, "a", "b", at_front=True, meta={"user": 7})
        self.assertEqual(self.queue.get_job_position(first.id), 0)
        self.work()
        self.assertEqual(len(self.queue), 0)
        self.assertEqual([job.return_value() for job in queued], list(range(1, 21)))
        first.refresh()
        self.assertEqual((first.return_value(), first.meta), ("ab", {"user": 7}))
        self.assertEqual(first.latest_result().type, rq.results.Result.Type.SUCCESSFUL)
        self.assertEqual(len(FinishedJobRegistry(queue=self.queue)), 21)
        self.assertEqual(IntermediateQueue(self.queue.key, self.client).get_job_ids(), [])

    def test_a_failed_job_is_retried_and_kept(self):
        job = self.queue.enqueue(jobs.fail, "not today", retry=rq.Retry(max=2))
        self.work()
        self.assertEqual(job.get_status(), JobStatus.FAILED)
        self.assertEqual(job.retries_left, 2, "as it was queued")
        job.refresh()
        self.assertEqual(job.retries_left, 0)
        self.assertIn("not today", job.latest_result().exc_string)
        registry = FailedJobRegistry(queue=self.queue)
        self.assertIn(job.id, registry)
        registry.requeue(job)
        self.assertEqual(self.queue.job_ids, [job.id])
        self.work()
        registry.remove(job, delete_job=True)
        self.assertFalse(rq.job.Job.exists(job.id, connection=self.client))

    def test_a_job_waits_for_those_it_depends_on(self):
        parents = [self.queue.enqueue(jobs.add, number, 1) for number in range(3)]
        child = self.queue.enqueue(jobs.add, 1, 1, depends_on=parents)
        self.assertEqual(child.get_status(), JobStatus.DEFERRED)
        self.assertNotIn(child.id, self.queue.job_ids)
        self.work()
        self.assertEqual(child.get_status(), JobStatus.FINISHED)
        self.assertEqual(child.return_value(), 2)

    def test_a_blocked_worker_takes_the_next_job_of_either_queue(self):
        other = rq.Queue(self.queue.name + ":other", connection=self.client)
        taken = []

        def take():
            client = redis.Redis(host="127.0.0.1", port=PORT)
            for _ in range(2):
                job, queue = rq.Queue.dequeue_any([self.queue, other], 60, connection=client)
                taken.append((job.args, queue.name))
            client.close()

        taker = threading.Thread(target=take)
        taker.start()
        other.enqueue(jobs.add, 1, 2)
        self.queue.enqueue(jobs.add, 3, 4)
        taker.join()
        self.assertEqual(
            sorted(taken), sorted([((1, 2), other.name), ((3, 4), self.queue.name)])
        )

    def test_workers_divide_the_jobs_among_them(self):
        queued = self.queue.enqueue_many(
            [rq.Queue.prepare_data(jobs.add, (number, 1)) for number in range(60)]
        )
        taken = [[], [], []]

        def take(mine):
            client = redis.Redis(host="127.0.0.1", port=PORT)
            while True:
                found = rq.Queue.dequeue_any([self.queue], None, connection=client)
                if found is None:
                    break
                mine.append(found[0].id)
            client.close()

        takers = [threading.Thread(target=take, args=[mine]) for mine in taken]
        for taker in takers:
            taker.start()
        for taker in takers:
            taker.join()
        self.assertEqual(sorted(sum(taken, [])), sorted(job.id for job in queued))

    def test_scheduled_jobs_stand_by_their_time(self):
        later = self.queue.enqueue_in(timedelta(hours=2), jobs.add, 1, 2)
        sooner = self.queue.enqueue_in(timedelta(hours=1), jobs.add, 1, 2)
        registry = ScheduledJobRegistry(queue=self.queue)
        self.assertEqual(registry.get_job_ids(), [sooner.id, later.id])
        self.assertEqual(registry.get_jobs_to_schedule(), [])
        sooner.delete()
        self.assertEqual(registry.get_job_ids(), [later.id])


if __name__ == "__main__":
    unittest.main()
