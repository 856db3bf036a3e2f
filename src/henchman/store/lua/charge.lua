-- charge: write a death of a process down against a job that it was running
-- KEYS deaths charged suspects cancels flight dead cancel_log cancelled broken cron_running batch_base queue_prefix queues history history_bytes history_on history_dropped (own)*
-- ARGV jid record payload stored alone dead_max dead_timeout keep_s effects batch
-- returns how many deaths the job has been charged with by now; -1 when this was the third and the job ran alone: then
--   it was taken out of flight and put into the dead set, or with the dead of its batch, as stored, with its effects. Two deaths make it a suspect:
--   the counter of cancellations rises, so that every worker reads the list before anything else starts.
-- include now
-- include cancel_log
-- include bury_payload
-- include words
-- include batch
-- include effects
if not redis.call('LPOS', KEYS[5], ARGV[3]) then  -- not in flight any more: nothing to charge, or it was done before
  local buried = redis.call('ZSCORE', KEYS[6], ARGV[4]) or redis.call('ZSCORE', KEYS[11] .. ARGV[10] .. ':dead', ARGV[4])
  return buried and -1 or 0
end
local now = server_now()
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', as_text(now - tonumber(ARGV[8])), 'LIMIT', 0, 100)) do
  redis.call('HDEL', KEYS[1], old)
  redis.call('ZREM', KEYS[2], old)
  redis.call('SREM', KEYS[3], old)
end
redis.call('ZREM', KEYS[2], ARGV[1])
local before = redis.call('HGET', KEYS[1], ARGV[1])
local who = string.match(ARGV[2], '^%S+ (%S+) ')  -- record is "<time> <identity> <cause>": each dies once
if before and who and string.find(before, ' ' .. who .. ' ', 1, true) then
  redis.call('ZADD', KEYS[2], as_text(now), ARGV[1])
  local _, told = string.gsub(before, '\n', '')
  return told + 1
end
local records = before and (before .. '\n' .. ARGV[2]) or ARGV[2]
local _, breaks = string.gsub(records, '\n', '')
local count = breaks + 1
if count >= 3 and ARGV[5] == '1' then
  if redis.call('LREM', KEYS[5], 1, ARGV[3]) == 1 then
    if ARGV[10] ~= '' and redis.call('EXISTS', KEYS[11] .. ARGV[10]) == 1 then
      redis.call('ZADD', KEYS[11] .. ARGV[10] .. ':dead', as_text(now), ARGV[4])
    else
      to_dead(KEYS[6], ARGV[4], now, tonumber(ARGV[6]), tonumber(ARGV[7]))
    end
    if ARGV[9] ~= '' then
      carrying_out(8, 17)(ARGV[3], 'poisoned', ARGV[9])
    end
  end
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('SREM', KEYS[3], ARGV[1])
  log_cancel(KEYS[4], KEYS[7], '!')
  return -1
end
redis.call('HSET', KEYS[1], ARGV[1], records)
redis.call('ZADD', KEYS[2], as_text(now), ARGV[1])
if count >= 2 then
  redis.call('SADD', KEYS[3], ARGV[1])
  log_cancel(KEYS[4], KEYS[7], '!')
end
return count
