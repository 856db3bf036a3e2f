-- batch_retry: push jobs of a batch that gave up once more; a complete batch goes on in its next generation
-- KEYS cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped batches (queue)*
-- ARGV batch queues (index name jid old new)*
-- returns how many were pushed, or "ABSENT". ZREM of the old payload from the dead of the batch is the fence.
-- include now
-- include words
-- include batch
local id, facts, batches, pushed = ARGV[1], KEYS[4] .. ARGV[1], batching(4), 0
if redis.call('EXISTS', facts) == 0 then
  return 'ABSENT'
end
for at = 3, #ARGV, 5 do
  local name, jid = ARGV[at + 1], ARGV[at + 2]
  if redis.call('ZREM', KEYS[4] .. id .. ':dead', ARGV[at + 3]) == 1 then
    batches.reopen(id)
    redis.call('HSET', KEYS[4] .. id .. ':jobs', jid, 'enqueued')
    redis.call('HINCRBY', facts, 'n:error', -1)
    redis.call('HINCRBY', facts, 'n:enqueued', 1)
    redis.call('SADD', KEYS[6], name)
    redis.call('LPUSH', KEYS[11 + ARGV[at]], ARGV[at + 4])
    batches.record(jid, id, 'enqueued', '0', '', '{"ending":"retried by hand"}')
    pushed = pushed + 1
  end
end
if pushed > 0 and redis.call('HGET', facts, 'n:error') == '0' then
  batches.forget_reasons(id, 'error ')
end
return pushed
