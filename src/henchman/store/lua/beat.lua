-- beat: write the record of a process and what it runs now, and take the signals that were sent to it
-- KEYS processes record signals (work)*
-- ARGV identity life_s (which name value)*
-- returns {1 if there was a record, else 0; signal…}, the newest first. which is record or work: the latter goes into each
--   of those keys, in place of what stood there. The record lives for life_s seconds, what ran for an hour at least: whoever
--   rescues it looks there. A full server refuses the whole.
redis.call('SADD', KEYS[1], ARGV[1])
local known = redis.call('EXISTS', KEYS[2])
for i = 4, #KEYS do
  redis.call('DEL', KEYS[i])
end
for at = 3, #ARGV, 3 do
  if ARGV[at] == 'record' then
    redis.call('HSET', KEYS[2], ARGV[at + 1], ARGV[at + 2])
  else
    for i = 4, #KEYS do
      redis.call('HSET', KEYS[i], ARGV[at + 1], ARGV[at + 2])
    end
  end
end
for i = 2, #KEYS do
  if i ~= 3 then
    redis.call('EXPIRE', KEYS[i], i == 2 and ARGV[2] or math.max(3600, 2 * ARGV[2]))
  end
end
return {known, unpack(redis.call('LPOP', KEYS[3], 10) or {})}
