-- ordered_push_tracked: put payloads under their ids, and begin the record of each
-- KEYS base ordered_queues cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped
-- ARGV queue collapse class seed keep (id when score payload)*
-- returns what ordered_push does, or "FULL", with nothing pushed: the history has no room for what must be kept. class
--   is JSON; the jid of row i is seed and i in six hex digits; keep: how the history is kept if nobody said so before,
--   "" not at all. What merges has a record too, which ends at once.
-- include now
-- include words
-- include ordered
-- include batch
-- include ordered_track
track = tracking(6)
if ARGV[5] ~= '' then
  redis.call('SET', KEYS[11], ARGV[5], 'NX')
end
if track.is_full() then
  return 'FULL'
end
local before = 5
-- include ordered_push
