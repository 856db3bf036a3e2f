-- cron_put: register crons, or change them
-- KEYS queues
-- ARGV origin fresh control (name definition)*
-- returns one status a cron: 1 new or changed, 0 it was there as it is, -1 a worker declares it in code, so what is
--   given live was refused. origin is "code" or "live"; a declaration counts for fresh seconds. A new cron, and one
--   whose timing changed, starts now: what it would have done before is not missed.
-- include base
-- include keys
local now, crons, ticks, all_declared = server_now(), key('crons'), key('cron_ticks'), key('cron_declared')
local status, changed = {}, false

local function timing(text)
  local fine, read = pcall(cjson.decode, text)
  return fine and type(read) == 'table' and read.timing
end

for at = 4, #ARGV, 2 do
  local name, definition = ARGV[at], ARGV[at + 1]
  local declared = redis.call('ZSCORE', all_declared, name)
  if ARGV[1] == 'live' and declared and tonumber(declared) > now - tonumber(ARGV[2]) then
    status[#status + 1] = -1
  else
    local present = redis.call('HGET', crons, name)
    local same = present and timing(present) == timing(definition)
    if not same or not redis.call('ZSCORE', ticks, name) then
      redis.call('ZADD', ticks, as_text(now), name)
    end
    if ARGV[1] == 'code' then
      redis.call('ZADD', all_declared, as_text(now), name)
    else
      redis.call('ZREM', all_declared, name)
    end
    status[#status + 1] = present == definition and 0 or 1
    if present ~= definition then
      redis.call('HSET', crons, name, definition)
      changed = true
    end
  end
end
if changed then
  redis.call('INCR', key('cron_revision'))
  redis.call('PUBLISH', ARGV[3], 'crons')
end
return status
