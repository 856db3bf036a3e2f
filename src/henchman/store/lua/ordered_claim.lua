-- ordered_claim: take ids that are due, each with its payloads, in claims of up to size ids
-- KEYS base leases tombs identities held paused
-- ARGV identity lease_ms queue claims extra size cap look_s
-- returns "LOST" when the identity was buried, "LAPSED" when its lease is gone, else {look_in, claims}: look_in is in how many
--   seconds to look again, if nothing rings before ("": not at all), a claim is {token, ids}, an id is {id, retry_count
--   (-1: it never failed), crashes, single payload or "", {payload, score, payload, score, …}}. extra: so many claims more
--   where nothing limits the queue. cap: at most so many payloads an id. An id that failed or crashed before is
--   claimed alone. No payload moves: `due` and `busy` say who holds it, `held` says it of this process. An overdue id
--   of somebody else is free when its holder was buried or has left, else it is looked at again in look_s.
-- include now
-- include ordered
local identity, queue, size, cap, look = ARGV[1], ARGV[3], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
if redis.call('EXISTS', KEYS[3] .. identity) == 1 then
  return 'LOST'
end
if redis.call('PEXPIRE', KEYS[2] .. identity, ARGV[2]) == 0 then
  return 'LAPSED'
end
if redis.call('SISMEMBER', KEYS[6], queue) == 1 then
  return {'', {}}
end
local now = server_now()
local settings = redis.call('HMGET', meta, 'limit', 'defined', 'group_limit', 'separator', 'token')
local limit, group_limit = tonumber(settings[1] or settings[2]) or 0, tonumber(settings[3]) or 0
local separator = group_limit > 0 and settings[4]

local lives = {}
local function is_gone(holder)
  if lives[holder] == nil then
    lives[holder] = redis.call('EXISTS', KEYS[3] .. holder) == 0
      and (redis.call('EXISTS', KEYS[2] .. holder) == 1 or redis.call('ZSCORE', KEYS[4], holder) ~= false)
  end
  return not lives[holder]
end

local most = tonumber(ARGV[4])
if limit > 0 then
  for _, member in ipairs(redis.call('ZRANGE', open, '-inf', as_text(now), 'BYSCORE')) do
    if is_gone(string.match(member, '|(.*)$')) then
      redis.call('ZREM', open, member)
    else
      redis.call('ZADD', open, 'XX', as_text(now + look), member)
    end
  end
  most = math.min(most, limit - redis.call('ZCARD', open))
else
  most = most + tonumber(ARGV[5])
end

-- May this id, which is overdue, be taken? A holder that was lost, with whom, is charged a crash.
local function is_free(id, record)
  if not record then
    return true
  end
  local token, _, _, holder = read_record(record)
  if not is_gone(holder) then
    redis.call('ZADD', due, 'XX', as_text(now + look), id)
    return false
  end
  redis.call('HINCRBY', crash, id, 1)
  leave_group(id, separator)
  leave_ceiling(token, holder)
  if redis.call('ZSCORE', next_due, id) then
    thaw(id)
  end
  return true
end

local function has_room(id, was_due)
  local group = group_of(id, separator)
  if not group then
    return true
  end
  local inside = KEYS[1] .. 'g:' .. group
  for _, other in ipairs(redis.call('ZRANGE', inside, '-inf', as_text(now), 'BYSCORE')) do
    if redis.call('HEXISTS', busy, other) == 1 then
      redis.call('ZADD', inside, 'XX', as_text(now + look), other)
    else
      redis.call('ZREM', inside, other)
    end
  end
  if redis.call('ZCARD', inside) >= group_limit then  -- put off until one of them leaves, at the latest until look
    redis.call('ZADD', KEYS[1] .. 'k:' .. group, 'NX', was_due, id)
    redis.call('ZADD', due, 'XX', redis.call('ZRANGE', inside, 0, 0, 'WITHSCORES')[2], id)
    return false
  end
  redis.call('ZADD', inside, as_text(now + look), id)
  redis.call('ZREM', KEYS[1] .. 'k:' .. group, id)
  return true
end

-- Claims are formed as ids are found: {ids, dues, alone}.
local formed, ids, dues = {}, {}, {}
local function add(id, was_due, alone)
  local last = formed[#formed]
  if alone or not last or last.alone or #last >= size then
    if #formed == most then
      return false
    end
    last = {alone = alone}
    formed[#formed + 1] = last
  end
  ids[#ids + 1], dues[#dues + 1], last[#last + 1] = id, was_due, #ids + 1
  return true
end

local more = false
local function look_once()
  local want = math.min(most * size - #ids, 450) + (separator and 33 or 1)
  local found = redis.call('ZRANGE', due, '-inf', as_text(now), 'BYSCORE', 'LIMIT', 0, want, 'WITHSCORES')
  local names = {}
  for i = 1, #found, 2 do
    names[#names + 1] = found[i]
  end
  if #names == 0 then
    return true
  end
  local records = redis.call('HMGET', busy, unpack(names))
  local marked = redis.call('EXISTS', retry, crash) > 0
  local counts = marked and redis.call('ZMSCORE', retry, unpack(names)) or {}
  local crashes = marked and redis.call('HMGET', crash, unpack(names)) or {}
  local taken = #ids
  for i, id in ipairs(names) do
    if #ids >= 450 or (#formed == most and (formed[most].alone or #formed[most] >= size)) then
      more = true
      return true
    end
    if is_free(id, records[i]) and has_room(id, found[2 * i]) then
      if not add(id, found[2 * i], counts[i] or crashes[i] or records[i]) then
        leave_group(id, separator)
        more = true
        return true
      end
    end
  end
  more = #names == want
  return #ids > taken or not more
end
if most > 0 then
  for _ = 1, 20 do
    if look_once() then
      break
    end
  end
end

local answer = {}
if #ids > 0 then
  local token = math.max(math.floor(now * 1000000), tonumber(settings[5] or '0') + 1)
  local singles, counts = redis.call('HMGET', one, unpack(ids)), redis.call('ZMSCORE', retry, unpack(ids))
  local crashes = redis.call('HMGET', crash, unpack(ids))
  local records, looks, held = {}, {}, {}
  for place, claim in ipairs(formed) do
    local name, of_claim = string.format('%.0f', token + place - 1), {}
    for _, at in ipairs(claim) do
      local id, delivered, payloads = ids[at], 0, {}
      if not singles[at] then
        payloads = redis.call('ZRANGE', KEYS[1] .. 'p:' .. id, 0, cap - 1, 'WITHSCORES')
        delivered = #payloads / 2
      end
      records[2 * at - 1], records[2 * at] = id, name .. '|' .. delivered .. '|' .. dues[at] .. '|' .. identity
      looks[2 * at - 1], looks[2 * at] = as_text(now + look), id
      held[2 * at - 1], held[2 * at] = id, name
      of_claim[#of_claim + 1] = {id, counts[at] or '-1', tonumber(crashes[at] or '0'), singles[at] or '', payloads}
    end
    if limit > 0 then
      redis.call('ZADD', open, as_text(now + look), name .. '|' .. identity)
    end
    answer[place] = {name, of_claim}
  end
  redis.call('HSET', meta, 'token', string.format('%.0f', token + #formed - 1))
  redis.call('HSET', busy, unpack(records))
  redis.call('ZADD', due, 'XX', unpack(looks))
  redis.call('HSET', KEYS[5], unpack(held))
end
if more then
  ring()  -- pass it on: one sleeper wakes the next
end
local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or ''
if limit > 0 and redis.call('ZCARD', open) >= limit then  -- whoever leaves rings; until then no id may be taken
  head = redis.call('ZRANGE', open, 0, 0, 'WITHSCORES')[2]
end
return {head ~= '' and as_text(math.max(tonumber(head) - now, 0)) or '', answer}
