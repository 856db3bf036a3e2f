-- read_each: what stands under each of these keys, as far as there is room in one answer
-- KEYS (key)*
-- ARGV (kind)*
-- returns one row a key, fewer when they reach 4 MB: {1, length, last entry} of a queue, {1, {name, value, …}} of a hash,
--   {0, error} of a key that holds something else. kind is queue, hash or spare: a hash that is read where the key
--   before it holds nothing.
-- include base
-- include bytes
local rows, size = {}, 0

local function read(at)
  if ARGV[at] == 'queue' then
    local length, last = redis.call('LLEN', KEYS[at]), redis.call('LINDEX', KEYS[at], -1)
    size = size + (last and #last or 0)
    return {1, length, last}
  end
  local before = ARGV[at] == 'spare' and rows[at - 1]
  if before and before[1] == 1 and #before[2] > 0 then
    return {1, {}}
  end
  local flat = redis.call('HGETALL', KEYS[at])
  for _, word in ipairs(flat) do
    size = size + #word
  end
  return {1, flat}
end

for at = 1, #KEYS do
  local fine, row = pcall(read, at)
  rows[at] = fine and row or {0, in_words(row)}
  if size >= MOST_BYTES then
    break
  end
end
return rows
