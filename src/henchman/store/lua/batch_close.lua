-- batch_close: a batch gets no more jobs; when all that it had are settled it is complete
-- KEYS queues producer
-- ARGV batch why
-- returns its state now, or "ABSENT". why: "", aborted, cancelled, expired, invalidated; a weaker reason than the one
--   that was said before changes nothing. Closing twice is closing once.
-- include base
-- include keys
-- include batch
local facts, batches = key('batch_base') .. ARGV[1], batching()
local weight = {aborted = 1, expired = 2, cancelled = 3, invalidated = 3}
local known = redis.call('HMGET', facts, 'state', 'why')
if not known[1] or known[1] == 'complete' then
  redis.call('ZREM', key('cancelled'), 'batch:' .. ARGV[1])
  return known[1] or 'ABSENT'
end
if (weight[ARGV[2]] or 0) > (weight[known[2]] or 0) then
  redis.call('HSET', facts, 'why', ARGV[2])
  if weight[ARGV[2]] > 1 and tonumber(redis.call('HGET', facts, 'n:blocked') or '0') > 0 then  -- the stager ends them
    redis.pcall('RPUSH', key('decide'), 'cancel\n\n0\nbatch:' .. ARGV[1] .. '\n')
  end
  batches.record_batch(ARGV[1], ARGV[2], '{}')
end
redis.call('DEL', KEYS[2])
if known[1] == 'open' then
  redis.call('HSET', facts, 'state', 'closed', 'closed', as_text(server_now()))
  batches.record_batch(ARGV[1], 'closed', '{}')
  batches.complete_if_empty(ARGV[1])
end
batches.flush()
return redis.call('HGET', facts, 'state')
