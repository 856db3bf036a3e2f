-- batch_release: let go of jobs that an atomic batch had parked, in their order: into their queues, or nowhere
-- KEYS cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped
-- ARGV batch most drop
-- returns how many are parked still. drop "1": the block did not end well, they are cancelled.
-- include now
-- include words
-- include batch
local id, facts, batches = ARGV[1], KEYS[4] .. ARGV[1], batching(4)
local parked = KEYS[4] .. ARGV[1] .. ':parked'
for _ = 1, tonumber(ARGV[2]) do
  local row = redis.call('LPOP', parked)
  if not row then
    break
  end
  local jid, name, payload = string.match(row, '^(%S+) (%S+) (.*)$')
  if ARGV[3] == '1' then
    batches.track({'track', id, jid, 'cancelled', '0', '', '{"reason":"the batch was not released"}', ''})
  elseif redis.call('HGET', KEYS[4] .. id .. ':jobs', jid) == 'blocked' then
    redis.call('SADD', KEYS[6], name)
    redis.call('LPUSH', KEYS[5] .. name, payload)
    batches.track({'track', id, jid, 'enqueued', '0', '', '{}', ''})
  end
end
return redis.call('LLEN', parked)
