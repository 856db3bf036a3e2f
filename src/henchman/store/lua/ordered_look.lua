-- ordered_look: everything about ids of an ordered queue, as it is at one moment
-- KEYS queues
-- ARGV queue most (id)*
-- returns {now, ids}, an id is {dues, payloads, record, arrivals, failed, dead}: dues is {due, when it was due that its
--   group put off}; payloads is {single, how many, {payload, score, …}}; record is {record, milliseconds that the lease of the
--   holder has left (-2: none), whether the holder was buried}; arrivals is {how many, {payload, score, …}, due};
--   failed is {retry_count, error, crashes}; dead is {how many, {payload, score, …}, when, error}. At most `most`
--   payloads each, lowest scores first; when they reach 4 MB each pile shows one, and other ids follow in another call.
-- include base
-- include keys
-- include ordered
local morgue, reasons = base .. 'morgue', base .. 'merr'
local most, separator = tonumber(ARGV[2]), redis.call('HGET', meta, 'separator')

-- What is known not to be there is not asked for: a list shows a hundred ids at once.
local function first_of(pile, there)
  local many = there and redis.call('ZCARD', pile) or 0
  return many, many > 0 and some_of(pile, most, 1) or {}
end

local function holder_of(id)
  local record = redis.call('HGET', busy, id)
  if not record then
    return {}
  end
  local _, _, _, holder = read_record(record)
  return {record, redis.call('PTTL', key('leases') .. holder), redis.call('EXISTS', key('tombs_of') .. holder)}
end

local function dues_of(id)
  local group = group_of(id, separator)
  return {redis.call('ZSCORE', due, id), group and redis.call('ZSCORE', base .. 'k:' .. group, id)}
end

local function look_at(id)
  local dues, single = dues_of(id), redis.call('HGET', sole, id)
  read_bytes = read_bytes + (single and #single or 0)
  local record, died, count = holder_of(id), redis.call('ZSCORE', morgue, id), redis.call('ZSCORE', retry, id)
  local next_time = record[1] ~= nil and redis.call('ZSCORE', next_due, id)
  local waiting, waiting_some = first_of(base .. 'p:' .. id, dues[1] and not single)
  local arrived, arrived_some = first_of(base .. 'n:' .. id, next_time)
  local dead, dead_some = first_of(base .. 'm:' .. id, died)
  return {
    dues,
    {single, waiting, waiting_some},
    record,
    {arrived, arrived_some, next_time},
    {count, count and redis.call('HGET', errors, id), redis.call('HGET', crash, id)},
    {dead, dead_some, died, died and redis.call('HGET', reasons, id)},
  }
end

local found = {}
for at = 3, #ARGV do
  found[at - 2] = look_at(ARGV[at])
  if read_bytes >= MOST_BYTES then
    break
  end
end
return {as_text(server_now()), found}
