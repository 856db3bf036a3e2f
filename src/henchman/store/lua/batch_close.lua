-- batch_close: a batch gets no more jobs; when all that it had are settled it is complete
-- KEYS cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped batches producer
-- ARGV batch why
-- returns its state now, or "ABSENT". why: "", aborted, cancelled, expired, invalidated; it is kept when it was said
--   before. Closing twice is closing once.
-- include now
-- include words
-- include batch
local facts, batches = KEYS[4] .. ARGV[1], batching(4)
local known = redis.call('HMGET', facts, 'state', 'why')
if not known[1] then
  return 'ABSENT'
end
if ARGV[2] ~= '' and known[2] == '' and known[1] ~= 'complete' then
  redis.call('HSET', facts, 'why', ARGV[2])
  batches.tell(ARGV[1], ARGV[2], '{}')
end
redis.call('DEL', KEYS[12])
if known[1] == 'open' then
  redis.call('HSET', facts, 'state', 'closed', 'closed', as_text(server_now()))
  batches.tell(ARGV[1], 'closed', '{}')
  batches.settled(ARGV[1])
end
return redis.call('HGET', facts, 'state')
