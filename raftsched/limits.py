"""Every bound of the system in one place: its unit in the name, its reason beside it."""

from __future__ import annotations

# -- what a client can send -------------------------------------------------------------------------------------------
PAYLOAD_BYTES_MAX = 256 * 1024
"""A payload is an argument, not a file; 256 KiB keeps an entry of the log well under one frame."""
CALL_BYTES_MAX = 16 * 1024
"""A request to send or a command to run, without its body: it is part of the job's record, which each change writes."""
HOOK_BYTES_MAX = 16 * 1024
"""The payload of a hook: it is part of the record of the job or queue that has it."""
HOOK_PLACEHOLDERS_MAX = 20
"""Each is replaced by up to 500 characters, and the whole is a payload."""
NOTICES_MAX = 10
"""Notices of a schedule: one for each channel and kind of event."""
NOTICES_BYTES_MAX = 16 * 1024
"""All notices of a schedule together: they are part of its record, which each of its runs writes."""
EMAIL_RECIPIENTS_MAX = 20
EMAIL_JOB_RECIPIENTS_MAX = 100
"""Recipients of one message; RFC 5321 promises that every server takes as many."""
LATE_MS_MIN = 1_000
"""The shortest lateness of a run that a notice can be about; no state is read for runs that start earlier."""
RESULT_BYTES_MAX = PAYLOAD_BYTES_MAX
"""A result may be as large as a payload."""
BODY_BYTES_MAX = 8 * 1024 * 1024
"""Largest request body: room for a batch of ordinary jobs, small enough that 100 uploads fit in memory."""
BATCH_JOBS_MAX = 1_000
VALUE_DEPTH_MAX = 64
"""Nesting of a payload, result or progress report, counted from itself; deeper ones stop parsers that recurse."""
JSON_DEPTH_MAX = VALUE_DEPTH_MAX + 8
"""Nesting of a document: the deepest value, and the levels around it (four in a file of schedules)."""
JSON_VALUES_MAX = 250_000
"""Values in one document: more than the densest payload can hold, and few enough to parse in a fraction of a second."""
UPLOADS_BYTES_MAX = 128 * 1024 * 1024
"""Request bodies in memory at once on one node; beyond it new ones get 503, however many clients upload."""
PAGE_JOBS_MAX = 1_000
PAGE_QUEUES_MAX = 500
"""Queues on one page, 30 µs each: a quarter of the time for which the loop may be blocked."""
PAGE_BYTES_MAX = 8 * 1024 * 1024
"""Payloads and results on one page of a list; a page ends early rather than grow to hundreds of megabytes."""
PAGE_ROWS_MAX = 5_000
"""Rows examined for one page of a list, or one dry run, in steps between which the loop runs: 150 ms of CPU. Beyond it a
page ends short, or empty."""
BULK_JOBS_MAX = 10_000
"""Jobs that one request changes; the next one continues from a cursor."""
BULK_FAILURES_SHOWN_MAX = 100
DEPENDENCIES_SHOWN_MAX = 100
"""Parents of each job in lists; a job that is read alone shows all."""
NAME_CHARS_MAX = 128
"""Job, queue, tenant, worker and region names; LMDB keys hold three of them and must stay under 511 bytes."""
IDEMPOTENCY_KEY_CHARS_MAX = 200
TAGS_MAX = 32
TAG_CHARS_MAX = 128
ERROR_MESSAGE_CHARS_MAX = 2_000
ERROR_TRACE_CHARS_MAX = 8_000
QUEUES_PER_LEASE_MAX = 1_000
"""Queues and patterns that one request asks for: one for each handler of a large program, and still little to look at."""
NAMES_PER_LEASE_MAX = 1_000
"""Handlers of one worker: twice what the largest programs have; they come with each request for jobs."""
COMPLETION_ID_CHARS_MAX = 64
REQUEST_ID_CHARS_MAX = 64

DELAY_MS_MAX = 10 * 366 * 86_400_000
"""Ten years; a longer duration is a mistake in units more often than a plan. An absolute time may be later."""
MOMENT_MS_MIN = 0
"""Times before 1970 are refused; a past time after it means: run now."""
MOMENT_MS_MAX = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last time that RFC 3339 can express."""
TIMEOUT_MS_MAX = 7 * 86_400_000
ATTEMPTS_MAX = 1_000
BACKOFF_MS_MAX = 7 * 86_400_000
RETRY_DELAYS_MAX = 100

# -- what a worker can ask --------------------------------------------------------------------------------------------
LEASE_CAPACITY_MAX = 1_000
LEASE_WAIT_SECONDS_MAX = 60
LEASE_BYTES_MAX = 4 * 1024 * 1024
"""Payloads granted by one lease: it stops after the job that passes this, and the other jobs wait for the next."""
OUTCOMES_MAX = 1_000
HEARTBEAT_LEASES_MAX = 10_000

# -- what a job keeps -------------------------------------------------------------------------------------------------
ATTEMPTS_KEPT_MAX = 20
"""Summaries of the latest attempts inside a job's record; older ones are dropped, the counts stay."""
LOST_WORKERS_DEFAULT = 3
"""A job that took this many workers down with it is dead-lettered, unless it or its queue says otherwise: it is more
likely the cause than the victim."""
LOST_WORKERS_MAX = 1_000_000
"""Practically unlimited: each loss takes a lease term at least, so these are months of them."""

NOTES_KEPT_MAX = 20
"""Lines of a job's history beside its attempts; older ones are dropped."""
CALLBACK_TOKEN_CHARS_MAX = 128
CALLBACK_DIGEST_BYTES_MAX = 16
LOG_BYTES_MAX = 1024 * 1024
"""Log of one attempt; a job that writes more has a log file of its own somewhere."""
LOG_PIECE_BYTES_MAX = 64 * 1024
LOG_PIECES_MAX = 10_000
"""Pieces of one attempt's log: a key each, so a worker that sends single lines is cut off before it costs much more."""
PROGRESS_BYTES_MAX = 4 * 1024
PROGRESS_REPORTS_MAX = 1_000

# -- what hangs together ----------------------------------------------------------------------------------------------
DEPENDENCIES_MAX = 10_000
"""Parents of one job: a fan-in over everything that one workflow may fan out to."""
WORKFLOW_JOBS_MAX = 20_000
WORKFLOW_PART_JOBS_MAX = 500
"""Jobs stored by one operation, as many as an entry of the log stores one by one; larger workflows come in parts."""
BACKGROUND_STEP_ITEMS_MAX = 200
"""Jobs or ledger lines touched by one background step: some milliseconds on each node."""
REENCRYPTED_ROWS_MAX = 300
"""Rows of a state examined, and encrypted under another key, in one step: about two milliseconds."""
INLINE_DEPENDANTS_MAX = 100
"""Dependants resolved in the very log entry that ended their parent; the others follow in steps."""
INLINE_DEPENDANTS_MIN = 2
"""Dependants resolved there in any case, even if the entry has reached ENTRY_WRITES_MAX."""
BLOCK_JOBS_MAX = 500
HANDLE_DEADLINES_MAX = 200
WORKER_VERSION_CHARS_MAX = 64
ACTIVITY_QUEUES_MAX = 1_000
"""Queues, each of a tenant, whose latest minutes a node remembers: some kilobytes for each that is busy."""
PAUSE_REASON_CHARS_MAX = 500
ACTOR_CHARS_MAX = 128
CONCURRENCY_KEY_CHARS_MAX = 128
BLOCKED_REGIONS_MAX = 50
"""Regions of one concurrency key whose blocked jobs are offered when a place is free: bounds the writes of one job's end."""
ERROR_TYPES_MAX = 50

# -- schedules and queues ---------------------------------------------------------------------------------------------
SCHEDULES_MAX = 100_000
SCHEDULE_DESCRIPTION_CHARS_MAX = 2_000
SCHEDULE_OWNER_CHARS_MAX = 200
PARAMETERS_MAX = 32
PARAMETERS_BYTES_MAX = 16 * 1024
"""JSON of the values of all parameters of a run, which are part of its job's record."""
PARAMETER_DEFINITIONS_BYTES_MAX = 64 * 1024
PARAMETER_DESCRIPTION_CHARS_MAX = 500
PARAMETER_CHOICES_MAX = 100
LABELS_MAX = 32
LABEL_CHARS_MAX = 200
SCHEDULE_ACTIVE_MAX = 1_000
"""Unfinished runs of one schedule, and as many of its backfills; beyond it a run is skipped (`overlap_limit`)."""
DECISIONS_MAX = 100
"""Decisions in one operation on a schedule."""
BACKFILL_RUNS_MAX = 10_000
CATCHUP_MS = 24 * 3_600_000
"""Missed fire times older than this are skipped, unless the schedule says otherwise."""
CATCHUP_RUNS_MAX = 1_000
"""Runs that `run_all` makes up for one outage; what is older is skipped (`catchup_expired`)."""
MISFIRE_GRACE_MS = 30_000
"""A decision this late is only late; later ones have missed their fire time, and the misfire policy decides."""
LEDGER_LINES_KEPT = 1_000
"""Decisions kept for each schedule, the latest by fire time; older ones only if a manual call may be repeated."""
LEDGER_CALLS_KEPT_MS = 30 * 86_400_000
"""The decisions of a backfill or a trigger for a fire time are kept at least this long, and not decided again."""
TRIGGERS_PER_MOMENT_MAX = 1_000
"""Triggers without a given fire time in the same milliseconds: each gets a fire time of its own."""
SKIP_REASON_CHARS_MAX = 200
CALENDAR_BYTES_MAX = 64 * 1024
AUDIT_KEPT_MS = 90 * 86_400_000
TENANTS_MAX = 10_000
"""Tenants that have settings: each is a record in memory."""
QUOTA_MAX = 1_000_000_000
"""Largest quota of jobs and of schedules."""
QUOTA_REPLY_SECONDS = 1.0
"""Longest delay of a reply that says a quota is used up, and twice the shortest: a client that repeats at once, on many
connections, is slowed down so. `Retry-After` never asks for an earlier one."""
QUOTA_RETRY_SECONDS = 5
"""Pause before a submission that exceeds a quota of what exists is repeated: some of it must end first."""
TOKEN_QUEUES_MAX = 100
"""Queues and patterns to which one token is limited."""
TOKEN_OVERLAP_SECONDS_MAX = 30 * 86_400
"""Longest time for which the text of a token before its rotation is accepted."""
TOKENS_MAX = 10_000
"""API tokens; one that is made counts them all."""
TENANT_TOKENS_MAX = 1_000
"""Tokens that admins of one tenant may make, so that they leave room for others."""
ADDRESS_CHARS_MAX = 64
"""Longest address in the audit trail: IPv6 with a zone."""
TOKEN_USES_MAX = 1_000
"""Tokens whose use one log entry notes."""
QUEUES_CONFIGURED_MAX = 10_000
TENANT_QUEUES_CONFIGURED_MAX = 1_000
"""Queues of its own to which one tenant may give settings, so that it leaves room for others."""
QUEUE_WEIGHTS_MAX = 1_000
QUEUE_LIMIT_MAX = 1_000_000
RATE_PERIOD_MS_MAX = 7 * 86_400_000

# -- the log ----------------------------------------------------------------------------------------------------------
ENTRY_OPERATIONS_MAX = 500
"""Operations gathered into one log entry; beyond some hundreds only latency grows (PYSYNCOBJ section 5)."""
ENTRY_WRITES_MAX = 4_000
"""Writes of one entry, some 10 µs each, up to which its operations resolve INLINE_DEPENDANTS_MAX dependants each. Without
that bound the ends of 500 parents would write 50,000 dependants in one entry, and heartbeats would be late."""
ENTRY_BYTES_MAX = 1024 * 1024
"""An entry closes when it passes this; with one operation of the largest payload it stays under APPEND_BYTES_MAX."""
APPEND_BYTES_MAX = 4 * 1024 * 1024
"""pysyncobj corrupts an entry of this size or more (PYSYNCOBJ defect 9), so none may come near."""
FRAME_BYTES_MAX = 16 * 1024 * 1024
"""One message between nodes; longer length prefixes are an error or an attack."""
MEMBERS_MAX = 9
"""Nodes of a cluster; each more costs every write, and 5 survive the loss of 2."""
FORMER_MEMBERS_MAX = 200
"""Ids of removed nodes that are refused for good; a configuration stays far below one log entry."""
PEER_BUFFER_BYTES_MAX = 32 * 1024 * 1024
"""Unsent bytes kept for a slow peer before its append messages are dropped; Raft sends them again."""
PEER_BUFFER_BYTES_HARD_MAX = 2 * PEER_BUFFER_BYTES_MAX
"""Unsent bytes at which a peer's connection is cut: even small messages only pile up there."""
FRAME_ITEMS_MAX = 256 * 1024
"""Entries in one message; with the smallest real entry (some 30 bytes) more than APPEND_BYTES_MAX can hold."""
HELLO_BYTES_MAX = 1024
"""First frame of a connection; its sender is not authenticated yet, so nothing larger is kept for it."""
PENDING_HANDSHAKES_MAX = 64
"""Accepted connections that have not said hello yet; beyond it the oldest is closed for the newest."""
INBOUND_BYTES_MAX = 32 * 1024 * 1024
"""Messages received but not yet seen by the engine; beyond it sockets are not read."""
ENTRIES_IN_FLIGHT_MAX = 4
PROPOSALS_WAITING_MAX = 20_000
"""Operations waiting for a log entry; more means overload, and the caller gets 503 at once. Only a tenant with less than
its share of them may still add some, up to twice this number in all."""
JOURNAL_SEGMENT_BYTES = 64 * 1024 * 1024
JOURNAL_CACHE_BYTES_MAX = 64 * 1024 * 1024
"""Entries kept in memory; older ones are read back from their segment."""
JOURNAL_TAIL_BYTES = 64 * 1024 * 1024
"""Log kept behind the last checkpoint for slow followers, so that a short absence needs no snapshot."""
NEW_CLUSTER_INDEX_STEP = 10**12
"""Log indexes left out by a cluster that begins with the state of another one, which may have continued: six years of
5,000 entries a second. Indexes are the revisions of records, so none is of both clusters."""
CHECKPOINT_BYTES = 16 * 1024 * 1024
"""Commands applied since the state's last commit at which it commits early: bounds the part of it that is only in memory."""
CHECKPOINT_SECONDS = 1.0
"""Longest time between what is applied and the state's commit; the journal has it before.

A job that ends within a checkpoint is stored once: a quarter of this costs a quarter more CPU in apply at full load. More
holds the event loop for too long, by about 10 µs for each job since the last one."""
SNAPSHOT_CHUNK_BYTES = 64 * 1024
"""Sent as one message; heartbeats wait for it on a narrow link: a tenth of a second at 5 Mbit/s."""
SNAPSHOT_WINDOW_CHUNKS = 64
"""On their way on a fast link: enough for 100 Mbit/s over 300 ms."""
SNAPSHOT_HOLD_BYTES = 4 * JOURNAL_TAIL_BYTES
"""Log kept for the receiver of a snapshot beyond the ordinary tail; a transfer that falls further behind starts again."""
APPEND_BATCH_BYTES = 1024 * 1024
"""Entries gathered into one append message; a larger entry travels alone."""
APPENDS_IN_FLIGHT_MAX = 16
"""Append messages to one follower that are not acknowledged; beyond it the log waits, not the memory."""

CLOCK_SKEW_MS = 500
"""A clock further off the median of the members' clocks stamps nothing (`consensus.cluster_clock`)."""

TRACEPARENT_CHARS = 55
"""Length of a `traceparent` of W3C Trace Context, version 00."""

# -- the leader -------------------------------------------------------------------------------------------------------
READY_BUFFER_JOBS_MAX = 1_000
"""Ready jobs held in memory for one queue and priority; the rest stay in the index."""
WHEEL_HORIZON_MS = 60_000
WHEEL_TIMERS_MAX = 10_000
"""Timers in memory; all may be due in one moment, and firing them takes some 2 µs each. The rest stay in the index."""
PURGE_JOBS_MAX = 500
"""Finished jobs removed by one operation, so that retention never delays other work for long."""
EXPIRE_LEASES_MAX = 500
SILENT_LEASES_MAX = 10_000
"""Leases of one worker that its mark lists as silent: as many as one heartbeat can name."""
MARK_BYTES_MAX = 128 * 1024
"""Names and silent leases in the marks of one operation, but for its first mark: a sixth of the entry that carries it."""
WORKERS_REMEMBERED_MAX = 10_000
"""Workers whose latest lease request a leader remembers, to answer its repetition."""
WAITING_WORKERS_MAX = 10_000

# -- the state on disk ------------------------------------------------------------------------------------------------
BACKUP_STREAMS_MAX = 2
"""Backups that a node sends at the same time; each keeps a copy of the state on the node's disk until it is sent."""
DISK_RESERVE_MIB = 256
"""Free space below which a node is low: the rest is for outcomes of running jobs, a checkpoint, and a person to notice."""
KEY_BYTES_MAX = 511
"""LMDB's own limit. Three texts, a tag, a time and an id share a key at most: 156 bytes of UTF-8 in each text always
fit."""
MAP_BYTES = 64 * 1024 * 1024 * 1024
"""Address space reserved for the state; it costs nothing until it is used, and it grows (see `MAP_HEADROOM_BYTES`)."""
MAP_HEADROOM_BYTES = 4 * 1024 * 1024 * 1024
"""Address space kept free ahead of the data: more than one transaction, bounded by the checkpoints, can ever fill."""
VERIFIED_AT_START_BYTES = 16 * 1024 * 1024
"""A state's file up to this is verified as a whole before it is opened: a second. Larger ones beside the running node."""
CACHED_JOBS_MAX = 10_000
"""Decoded records of jobs written lately, about 1 KiB each; a lease or an outcome soon after needs no decoding."""
SCAN_ROWS_MAX = 1_000
"""Index rows read by one step of a walk or examined for one page, so that no request blocks the loop for long."""
MAPPED_BYTES_MAX = 128 * 1024 * 1024
"""Pages of mapped files that may count as this process's memory; beyond it the state's are released (`storage.resident`)."""
ENCODED_QUEUES_MAX = 4_096
"""Queue names kept in their encoded form; more queues than this are rarely busy at the same time."""
SPECS_CHECKED_MAX = 1_024
"""Specifications of jobs that are known to be possible; a job of a kind that comes often is not checked again."""

# -- schedules --------------------------------------------------------------------------------------------------------
CRON_CHARS_MAX = 512
"""Room for lists of every minute, hour, day and weekday in one expression; longer texts are refused unread."""
EVERY_MS_MIN = 1_000
"""The shortest period of a schedule, the same as that of an expression with seconds."""
EVERY_MS_MAX = DELAY_MS_MAX
EXPRESSIONS_KEPT_MAX = 4_000
"""Parsed expressions kept, some 4 KiB each; schedules share few texts, and a new one takes 0.3 ms."""
ZONE_NAME_CHARS_MAX = 64
ZONE_CHUNKS_MAX = 64
"""Cached half years of one zone; schedules use the near future, and a sweep fills the cache again."""
CALENDAR_DATES_MAX = 1_000
"""Dates that one calendar lists; business days by country need none."""
CALENDAR_WINDOWS_MAX = 100
CALENDAR_REASON_CHARS_MAX = 100
"""With its prefix, a reason stays within SKIP_REASON_CHARS_MAX."""
HOLIDAY_YEARS_KEPT_MAX = 200
"""Years of a country's holidays kept, some 10 KiB each."""

# -- the API of schedules and events ----------------------------------------------------------------------------------
PREVIEW_FIRE_TIMES_MAX = 1_000
"""Fire times shown by one request."""
FIRE_TIMES_EXAMINED_MAX = 5_000
"""Fire times examined for one answer, since a calendar may skip nearly all: a tenth of a second of work."""
APPLY_SCHEDULES_MAX = 1_000
"""Schedules in one file: a fresh expression takes 0.3 ms to read, and the file is read as a whole before it is applied."""
PASSED_FIRE_TIMES_COUNTED_MAX = 2_000
"""Undecided fire times that are counted when a timing is changed; more are reported as too many."""
EVENTS_KEPT_MAX = 20_000
"""Latest events in memory, some 300 bytes each, for readers that come back."""
EVENT_STREAMS_MAX = 500
TENANT_EVENT_STREAMS_MAX = 100
"""Streams of events that the tokens of one tenant may have at one node."""
OVERVIEW_QUEUES_MAX = 500
"""Queues that are looked at for their longest wait: about ten milliseconds."""
DASHBOARD_STREAMS_MAX = 200
"""Pages of the dashboard that one node updates at the same time; each costs some requests a second."""
EVENTS_PER_WRITE_MAX = 200
"""Events written to a reader at once, so that no reader blocks the loop for long."""

# -- metrics ----------------------------------------------------------------------------------------------------------
METRIC_QUEUES_MAX = 100
"""Queues with a label of their own in metrics, some 50 lines each; all others share one label."""
METRIC_QUEUES_READ_MAX = 200
"""Of the queues that share a label, those whose longest wait is read by one scrape, some 50 µs each."""
LATE_FIRING_MS = 60_000
"""A planned fire time that is fired so much later counts as late: more than the time to a new leader."""

# -- the end of a node ------------------------------------------------------------------------------------------------
STOP_SECONDS_MAX = 9.0
"""From the signal, or the fault, to the end of the process, even if parts hang: less than the 10 s of `docker stop`."""
TRANSFER_SECONDS_MAX = 3.0
"""The part of it for a successor to take the lead; that takes milliseconds if there is one."""
API_STOP_SECONDS_MAX = 1.5
EXECUTOR_STOP_SECONDS_MAX = 1.0
"""The part of it for the executor that the node runs beside itself; it is asked first, while the lead is transferred."""
REPLICA_STOP_SECONDS_MAX = 3.0
"""The part of it for the pump: the sync that it waits for, and the last one of the journal."""
DUTIES_STOP_SECONDS_MAX = 0.5
LINKS_CLOSE_SECONDS_MAX = 1.0
"""For the tasks of the transport to end; each only has to see that it was cancelled."""

# -- from node to node over HTTP --------------------------------------------------------------------------------------
FORWARD_CONNECTIONS_MAX = 64
"""Connections that a follower opens to the leader for requests that are answered at once; more only make it slower."""
FORWARDED_WAITS_MAX = 4_000
"""Long polls that a follower passes on, each on a connection of its own; beyond it workers must ask the leader itself."""
RELAY_BYTES_MAX = 1024 * 1024
"""Single submits gathered into one request to the leader: it closes when it passes this. One of half of it goes alone."""
RELAYS_IN_FLIGHT_MAX = 4
RELAY_EARLY_SUBMITS = 100
"""While such a request is under way, the next leaves early only with so many: large requests are cheap ones."""
ACCEPT_BACKLOG = 4_096
"""Connections that the kernel keeps for a node that is busy; with aiohttp's 128, bursts of clients are dropped."""

# -- executors --------------------------------------------------------------------------------------------------------
SECRET_BYTES_MAX = 64 * 1024
"""A secret is a token or a key; an executor reads it for each run."""
HTTP_RESULT_BODY_BYTES_MAX = 64 * 1024
"""Start of a response's body in the result of an HTTP job."""
