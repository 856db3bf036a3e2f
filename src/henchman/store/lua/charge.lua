-- charge: write a death of a process down against a job that it was running
-- KEYS queues flight
-- ARGV jid record payload stored alone dead_max dead_timeout keep_s effects batch notice
-- returns how many deaths the job has been charged with by now; -1 when this was the third and the job ran alone: then
--   it was taken out of flight and put into the dead set, or with the dead of its batch, as stored, with its effects, and
--   the notice waits for a process that has death handlers, the newest 100 for a day. Two
--   deaths make it a suspect: the counter of cancellations rises, so that every worker reads the list before anything
--   else starts. record is "<time> <identity> <cause>"; an identity dies once. Where the dead set refuses a poison pill,
--   it stays a suspect, with a note in the broken list.
-- include base
-- include keys
-- include cancel_log
-- include to_dead
-- include effects
local FLIGHT, jid, record, payload, stored = KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local deaths, charged, suspects = key('deaths'), key('charged'), key('suspects')
if not redis.call('LPOS', FLIGHT, payload) then  -- not in flight any more: nothing to charge, or it was done before
  local is_dead = redis.call('ZSCORE', key('dead'), stored)
    or redis.call('ZSCORE', key('batch_base') .. ARGV[10] .. ':dead', stored)
  return is_dead and -1 or 0
end
local now = server_now()
for _, old in ipairs(redis.call('ZRANGEBYSCORE', charged, '-inf', as_text(now - tonumber(ARGV[8])), 'LIMIT', 0, 100)) do
  redis.call('HDEL', deaths, old)
  redis.call('ZREM', charged, old)
  redis.call('SREM', suspects, old)
end
redis.call('ZREM', charged, jid)
local before = redis.call('HGET', deaths, jid)
local identity = string.match(record, '^%S+ (%S+) ')
if before and identity and string.find(before, ' ' .. identity .. ' ', 1, true) then
  redis.call('ZADD', charged, as_text(now), jid)
  local _, breaks = string.gsub(before, '\n', '')
  return breaks + 1
end
local records = before and (before .. '\n' .. record) or record
local _, breaks = string.gsub(records, '\n', '')
local count = breaks + 1
if count >= 3 and ARGV[5] == '1' then
  local fine, problem = pcall(to_dead, stored, now, ARGV[10], tonumber(ARGV[6]), tonumber(ARGV[7]))
  if fine then
    redis.call('LREM', FLIGHT, 1, payload)
    carry_out(payload, 'poisoned', ARGV[9])
    finish_effects()
    redis.call('HDEL', deaths, jid)
    redis.call('SREM', suspects, jid)
    log_cancel('!')
    local notices = key('notices')
    redis.call('RPUSH', notices, ARGV[11])
    redis.call('LTRIM', notices, -100, -1)
    redis.call('EXPIRE', notices, 86400)
    return -1
  end
  note_broken(payload, 'poisoned', ARGV[9], problem)
end
redis.call('HSET', deaths, jid, records)
redis.call('ZADD', charged, as_text(now), jid)
if count >= 2 then
  redis.call('SADD', suspects, jid)
  log_cancel('!')
end
return count
