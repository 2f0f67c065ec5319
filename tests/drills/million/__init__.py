"""Fill three real nodes with a million jobs in ten thousand queues, and count what each page of the dashboard costs.

    python -m tests.drills.million --jobs 1000000 --queues 10000

`filling` submits the jobs, `pages` lists the pages with the rows that each may read, `visits` opens them on the leader,
and `nodes` runs nodes that count the rows that their stores give out.

Each page is opened while nothing else happens, which gives its rows, and then five times beside a light load of submits,
which gives its times. It fails if a page fails, reads more rows than its bound, or takes more than 300 ms of the leader's
CPU.
"""
