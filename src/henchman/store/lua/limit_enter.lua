-- limit_enter: who is no job asks for a place of a limit, and renews the lease of the place that it has
-- KEYS queues
-- ARGV lease name by n number lease_ms has
-- returns {1, number}: it has its place; {0, number}: none is free yet, `number` is what it had when it asked first; {2, kind}:
--   the limit is no number of places, or nobody knows it (""); {3, 0}: it had its place (`has`) and has it no longer.
--   It stands behind the jobs that were in line when it asked first. When they have gone on it has a field among the places,
--   with its number below zero: from then on no job is let go before it.
-- include base
-- include keys
local LEASE, NAME, BY = ARGV[1], ARGV[2], ARGV[3]
local places_key = key('slots') .. NAME .. ':' .. BY
local said = redis.call('HGET', places_key, LEASE)
if ARGV[7] == '1' and not said then
  return {3, 0}
end
local value = redis.call('HGET', key('limits'), NAME)
if not value and tonumber(ARGV[4]) < 0 then
  return {2, ''}
elseif not value then
  value = string.format('c %d 0 %d 0', ARGV[4], ARGV[4])
  redis.call('HSET', key('limits'), NAME, value)
end
local kind, size = string.match(value, '^(%l) (%S+) ')
if kind ~= 'c' then
  return {2, kind or ''}
end
redis.call('ZADD', key('programs'), as_text(server_now() + ARGV[6] / 1000), LEASE .. '\n' .. NAME .. '\n' .. BY)
if said and string.sub(said, 1, 1) ~= '-' then
  return {1, 0}
end
local number = tonumber(said and string.match(said, '^%-(%d+) ') or ARGV[5])
if number == 0 then
  number = redis.call('INCR', key('token'))
end

local function behind_jobs()
  local waiting_line = key('awaits') .. 's' .. NAME .. '\n' .. BY
  local first = redis.call('ZRANGE', waiting_line, 0, 0, 'WITHSCORES')
  return first[1] and tonumber(first[2]) < number
end

-- How many wait here whose number is smaller, and how many wait.
local function programs_waiting()
  local before, waiting, fields = 0, 0, redis.call('HGETALL', places_key)
  for at = 1, #fields, 2 do
    local other = tonumber(string.match(fields[at + 1], '^%-(%d+) '))
    if other then
      waiting = waiting + 1
      before = before + (other < number and 1 or 0)
    end
  end
  return before, waiting
end

local function has_turn()
  local over = redis.call('HLEN', places_key) - tonumber(size)
  if over <= 0 then
    return true
  end
  local before, waiting = programs_waiting()
  return before < waiting - over
end

if not said then
  if behind_jobs() then
    return {0, number}
  end
  local taken_key = key('limited') .. NAME
  redis.call('HSET', places_key, LEASE, string.format('-%d %s', number, as_text(server_now())))
  redis.call('SADD', taken_key, BY)
end
if not has_turn() then
  return {0, number}
end
redis.call('HSET', places_key, LEASE, string.format('%d %s', number, as_text(server_now())))
return {1, number}
