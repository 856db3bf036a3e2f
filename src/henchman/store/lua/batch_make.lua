-- batch_make: write down a new batch, open, with its producer's lease
-- KEYS queues producer
-- ARGV batch producer_ms (field value)*
-- returns 1, 0 it stands there already, or "PARENT" when the batch it is to be part of takes nothing more. Fields: see
--   store/keys.py; record is the JSON that the history gets.
-- include base
-- include keys
-- include batch
-- include cancel_log
local base = key('batch_base')
local facts = base .. ARGV[1]
if redis.call('EXISTS', facts) == 1 then
  return 0
end
local now, record, parent = server_now(), '{}', nil
local fields = {'state', 'open', 'why', '', 'created', as_text(now), 'generation', '1', 'total', '0'}
for at = 3, #ARGV, 2 do
  if ARGV[at] == 'record' then
    record = ARGV[at + 1]
  else
    fields[#fields + 1], fields[#fields + 2] = ARGV[at], ARGV[at + 1]
    parent = ARGV[at] == 'parent' and ARGV[at + 1] ~= '' and ARGV[at + 1] or parent
  end
end
if parent then
  local above = redis.call('HMGET', base .. parent, 'state', 'why', 'paused')
  if not above[1] or above[1] == 'complete' or (above[2] ~= '' and above[2] ~= 'aborted') then
    return 'PARENT'
  end
  redis.call('HSET', base .. parent .. ':jobs', 'batch:' .. ARGV[1], 'child')
  redis.call('HINCRBY', base .. parent, 'children', 1)
  if above[3] then  -- what is part of a paused batch is paused
    fields[#fields + 1], fields[#fields + 2] = 'paused', above[3]
    redis.call('SADD', key('paused_batches'), ARGV[1])
    log_cancel('|')
    redis.call('PUBLISH', key('control_all'), 'news')
  end
end
redis.call('HSET', facts, unpack(fields))
redis.call('ZADD', key('batches'), as_text(now), ARGV[1])
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
local batches = batching()
batches.record_batch(ARGV[1], 'open', record)
batches.flush()
return 1
