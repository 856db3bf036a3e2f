-- group_errors: add failures to the groups that they belong to
-- KEYS recent facts traces
-- ARGV now life_s most (group facts trace)*
-- returns how many groups were forgotten to make room. recent has each group by its last failure, facts and traces what
--   is known of it (JSON); the field '' of facts counts what was forgotten so. Of a group at most 48 hours and 20 names
--   of jobs, queues, hosts, versions and attempts are counted one by one. All of it lives for life_s seconds after the
--   last failure.
local now, life, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local function forget(groups)
  for _, group in ipairs(groups) do
    redis.call('ZREM', KEYS[1], group)
    redis.call('HDEL', KEYS[2], group)
    redis.call('HDEL', KEYS[3], group)
  end
  return #groups
end

local function read(text)
  local fine, found = pcall(cjson.decode, text or '')
  return fine and type(found) == 'table' and tonumber(found.count) and found or nil
end

local function add(fresh, known, room)
  for name, count in pairs(known or {}) do
    if fresh[name] or room > 0 then
      room = fresh[name] and room or room - 1
      fresh[name] = (fresh[name] or 0) + count
    end
  end
end

local function size(counts)
  local many = 0
  for _ in pairs(counts) do
    many = many + 1
  end
  return many
end

forget(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - life, 'LIMIT', 0, 100))
for at = 4, #ARGV, 3 do
  local group, fresh = ARGV[at], cjson.decode(ARGV[at + 1])
  local known = read(redis.call('HGET', KEYS[2], group))
  if known then
    fresh.count = fresh.count + known.count
    fresh.first = math.min(fresh.first, known.first)
    if known.last > fresh.last then
      fresh.last, fresh.jid, fresh.message = known.last, known.jid, known.message
    end
    for hour in pairs(known.hours) do
      if tonumber(hour) <= now / 3600 - 48 then
        known.hours[hour] = nil
      end
    end
    add(fresh.hours, known.hours, 48)
    for _, counts in ipairs({'jobs', 'queues', 'hosts', 'versions', 'attempts'}) do
      fresh[counts] = fresh[counts] or {}
      add(fresh[counts], known[counts], 20 - size(fresh[counts]))
    end
  end
  redis.call('ZADD', KEYS[1], fresh.last, group)
  redis.call('HSET', KEYS[2], group, cjson.encode(fresh))
  redis.call('HSET', KEYS[3], group, ARGV[at + 2])
end
local beyond = redis.call('ZCARD', KEYS[1]) - most
local forgotten = beyond > 0 and forget(redis.call('ZRANGE', KEYS[1], 0, beyond - 1)) or 0
if forgotten > 0 then
  redis.call('HINCRBY', KEYS[2], '', forgotten)
end
for i = 1, #KEYS do
  redis.call('EXPIRE', KEYS[i], life)
end
return forgotten
