-- cron_put: register crons, or change them
-- KEYS crons cron_ticks cron_declared cron_revision
-- ARGV origin fresh control (name definition)*
-- returns one status a cron: 1 new or changed, 0 it was there as it is, -1 a worker declares it in code, so what is
--   given live was refused. origin is "code" or "live"; a declaration counts for fresh seconds. A new cron, and one
--   whose timing changed, starts now: what it would have done before is not missed.
-- include now
local now = server_now()
local status, changed = {}, false

local function timing(text)
  local fine, read = pcall(cjson.decode, text)
  return fine and type(read) == 'table' and read.timing
end

for at = 4, #ARGV, 2 do
  local name, definition = ARGV[at], ARGV[at + 1]
  local declared = redis.call('ZSCORE', KEYS[3], name)
  if ARGV[1] == 'live' and declared and tonumber(declared) > now - tonumber(ARGV[2]) then
    status[#status + 1] = -1
  else
    local present = redis.call('HGET', KEYS[1], name)
    local same = present and timing(present) == timing(definition)
    if not same or not redis.call('ZSCORE', KEYS[2], name) then
      redis.call('ZADD', KEYS[2], as_text(now), name)
    end
    if ARGV[1] == 'code' then
      redis.call('ZADD', KEYS[3], as_text(now), name)
    else
      redis.call('ZREM', KEYS[3], name)
    end
    status[#status + 1] = present == definition and 0 or 1
    if present ~= definition then
      redis.call('HSET', KEYS[1], name, definition)
      changed = true
    end
  end
end
if changed then
  redis.call('INCR', KEYS[4])
  redis.call('PUBLISH', ARGV[3], 'crons')
end
return status
