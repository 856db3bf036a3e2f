-- zset_facets: which jobs, queues and errors the payloads of a sorted set name, over a stretch of it from a rank on
-- KEYS source
-- ARGV first most reverse
-- returns {how many were looked at; {job, count, …}; {queue, count, …}; {error, count, …}}: each name as it stands in the
--   JSON, without its quotes. It ends with the entry that reaches 4 MB. A payload is not decoded, which takes three times
--   as long as to read it: a name is what follows the first such field, so one that stands in the arguments before it
--   counts in its place.
-- include page
local LONGEST = 400
local page, looked = page_of(function(place, many)
  if ARGV[3] == '1' then
    return redis.call('ZREVRANGE', KEYS[1], ARGV[1] + place, ARGV[1] + place + many - 1)
  end
  return redis.call('ZRANGE', KEYS[1], ARGV[1] + place, ARGV[1] + place + many - 1)
end, tonumber(ARGV[2]), 1, 1)

local function value(text, field)
  local _, last = string.find(text, '"' .. field .. '":"', 1, true)
  if not last then
    _, last = string.find(text, '"' .. field .. '": "', 1, true)
  end
  local quote = last and string.find(text, '"', last + 1, true)
  while quote and #string.match(string.sub(text, last + 1, quote - 1), '\\*$') % 2 == 1 do  -- a quote of the name
    quote = quote - last <= LONGEST and string.find(text, '"', quote + 1, true) or nil
  end
  return quote and quote - last <= LONGEST and string.sub(text, last + 1, quote - 1) or nil
end

local function count(counts, name)
  if name and name ~= '' then
    counts[name] = (counts[name] or 0) + 1
  end
end

local function flat(counts)
  local found = {}
  for name, many in pairs(counts) do
    found[#found + 1], found[#found + 2] = name, many
  end
  return found
end

local jobs, queues, errors = {}, {}, {}
for _, text in ipairs(page) do
  count(jobs, value(text, 'display_class') or value(text, 'wrapped') or value(text, 'class'))
  count(queues, value(text, 'queue') or 'default')
  count(errors, value(text, 'error_class'))
end
return {looked, flat(jobs), flat(queues), flat(errors)}
