"""Count what happens and read how things are, for Prometheus.

Theory of operation. `catalog` has ONE table of all metrics: names, texts, labels, buckets. Counters and histograms are
counted while things happen, by plain additions: `job_events` from the changes of applied entries, `requests` by the API.
Gauges are read when they are asked for, from counts that the state keeps: no scrape walks over jobs. All of them are
`Reading`s, which `exposition` writes in Prometheus' text format.

The numbers of the cluster are exported by its leader only, while a majority confirms that it leads. In an election they
are absent, never zero. Each leader counts from the start of its process on, and only while it leads: so the sum over
all nodes of a counter's rate counts each event once, whoever led.

Labels have no ids of jobs. Queues that have a label of their own are capped (`queue_labels`).
"""
