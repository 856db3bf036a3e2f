-- batch_push: push tracked jobs into one queue or the schedule, as members of a batch or of none
-- KEYS cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped schedule queue
-- ARGV batch member name (jid when payload detail)*
-- returns how many were pushed (a jid that is a member already is not pushed again), or "ABSENT" no such batch,
--   "CLOSED" it takes no more, "FULL" the history has no room for what must be kept. when: "" now, "+s" in s seconds of
--   the server, else a Unix time; "parked": not before the batch is released. member: a job of the batch that has not
--   ended and adds to it though it is closed, or "". detail is JSON for the history.
-- include now
-- include words
-- include batch
local id, name, batches = ARGV[1], ARGV[3], batching(4)
local facts, now, pushed = KEYS[4] .. id, server_now(), 0
if id ~= '' then
  local known = redis.call('HMGET', facts, 'state', 'why', 'expires')
  if not known[1] then
    return 'ABSENT'
  end
  local may = known[1] == 'open' or (known[1] == 'closed' and redis.call('HEXISTS', KEYS[4] .. id .. ':jobs', ARGV[2]) == 1)
  if not may or known[2] == 'cancelled' or known[2] == 'invalidated' or now > (tonumber(known[3]) or math.huge) then
    return 'CLOSED'
  end
end
if batches.is_full() then
  return 'FULL'
end
local counts = {}
for at = 4, #ARGV, 4 do
  local jid, when, payload = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local status = when == '' and 'enqueued' or when == 'parked' and 'blocked' or 'scheduled'
  if id == '' or redis.call('HSETNX', KEYS[4] .. id .. ':jobs', jid, status) == 1 then
    if status == 'enqueued' then
      redis.call('LPUSH', KEYS[12], payload)
    elseif status == 'blocked' then
      redis.call('RPUSH', KEYS[4] .. id .. ':parked', jid .. ' ' .. name .. ' ' .. payload)
    else
      local due = string.sub(when, 1, 1) == '+' and now + tonumber(when) or tonumber(when)
      redis.call('ZADD', KEYS[11], as_text(due), payload)
    end
    pushed, counts[status] = pushed + 1, (counts[status] or 0) + 1
    batches.record(jid, id, status, '0', '', ARGV[at + 3])
  end
end
if pushed > 0 then
  redis.call('SADD', KEYS[6], name)
  if id ~= '' then
    redis.call('HINCRBY', facts, 'total', pushed)
    for status, count in pairs(counts) do
      redis.call('HINCRBY', facts, 'n:' .. status, count)
    end
  end
end
return pushed
