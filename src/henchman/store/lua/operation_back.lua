-- operation_back: put some of what an operation moved back where it was, as far as it is still where it was put
-- KEYS queues operation doer trash
-- ARGV identity lease_ms slice most first reach
-- returns {state of the operation, how many lie in the trash still}; {LOST}: another does it by now. Nothing is done
--   unless the state is "undoing", and a slice that was done is not done again. first is "1" to begin with what was moved
--   first. A job is looked for among the reach newest of its queue, or those that are next there. What was in a line of a
--   fair queue comes back to the right end of its list, and from there into its line, next.
-- include base
-- include keys
-- include left_line
-- include came_back
local OPERATION, TRASH, most = KEYS[2], KEYS[4], 6 * tonumber(ARGV[4])
if redis.call('GET', KEYS[3]) ~= ARGV[1] then
  return {'LOST'}
end
redis.call('PEXPIRE', KEYS[3], ARGV[2])
local state = redis.call('HGET', OPERATION, 'state') or 'LOST'
if state ~= 'undoing' or redis.call('HGET', OPERATION, 'slice') == ARGV[3] then
  return {state, redis.call('LLEN', TRASH) / 6}
end

local function taken(home, where, name, new)
  if where == 'queue' or where == 'next' then
    local list, side = key('queue_prefix') .. name, where == 'next' and -1 or 1
    return redis.call('LPOS', list, new, 'RANK', side, 'MAXLEN', ARGV[6]) and redis.call('LREM', list, side, new) == 1
  elseif where == 'dead' then
    return redis.call('ZREM', key('dead'), new) == 1
  end
  return where == 'nowhere' or redis.call('ZREM', home, new) == 1
end

local function put_back(source, where, name, score, old, new)
  local home = own_key(source)
  if not taken(home, where, name, new) then
    return 'ran'
  elseif string.sub(home, 1, #key('queue_prefix')) == key('queue_prefix') then
    local whose = whose_line(string.sub(home, #key('queue_prefix') + 1))
    local target = whose or string.sub(home, #key('queue_prefix') + 1)
    redis.call('SADD', KEYS[1], target)
    redis.call('RPUSH', key('queue_prefix') .. target, old)
    if whose then
      came_back(target, 1)
    end
  else
    redis.call('ZADD', home, score, old)
  end
  return 'back'
end

local counts, some = {back = 0, ran = 0}, {}
if ARGV[5] == '1' then
  some = redis.call('LRANGE', TRASH, 0, most - 1)
  redis.call('LTRIM', TRASH, most, -1)
else
  local from = redis.call('LRANGE', TRASH, -most, -1)
  redis.call('LTRIM', TRASH, 0, -most - 1)
  for at = #from - 5, 1, -6 do
    for part = at, at + 5 do
      some[#some + 1] = from[part]
    end
  end
end
for at = 1, #some, 6 do
  local became = put_back(some[at], some[at + 1], some[at + 2], some[at + 3], some[at + 4], some[at + 5])
  counts[became] = counts[became] + 1
end
for name, count in pairs(counts) do
  redis.call('HINCRBY', OPERATION, name, count)
end
redis.call('HSET', OPERATION, 'slice', ARGV[3], 'at', as_text(server_now()))
return {state, redis.call('LLEN', TRASH) / 6}
