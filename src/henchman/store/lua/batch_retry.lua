-- batch_retry: push jobs of a batch that gave up once more; a complete batch goes on in its next generation
-- KEYS queues
-- ARGV batch (name jid old new)*
-- returns how many were pushed, or "ABSENT". ZREM of the old payload from the dead of the batch is the fence.
-- include base
-- include keys
-- include batch
local id, facts, batches, pushed = ARGV[1], key('batch_base') .. ARGV[1], batching(), 0
if redis.call('EXISTS', facts) == 0 then
  return 'ABSENT'
end
for at = 2, #ARGV, 4 do
  local name, jid, old, new = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  if redis.call('ZREM', facts .. ':dead', old) == 1 then
    batches.reopen(id)
    redis.call('HSET', facts .. ':jobs', jid, 'enqueued')
    redis.call('HDEL', facts .. ':results', jid)
    redis.call('HINCRBY', facts, 'n:error', -1)
    redis.call('HINCRBY', facts, 'n:enqueued', 1)
    redis.call('SADD', KEYS[1], name)
    redis.call('LPUSH', key('queue_prefix') .. name, new)
    batches.record(jid, id, 'enqueued', '0', '', '{"ending":"retried by hand"}')
    pushed = pushed + 1
  end
end
if pushed > 0 and redis.call('HGET', facts, 'n:error') == '0' then
  batches.forget_reasons(id, 'error ')
end
batches.flush()
return pushed
