-- ordered_claim: take ids that are due, each with its payloads, in claims of up to size ids
-- KEYS queues held
-- ARGV queue identity lease_ms claims extra size cap look_s tracked
-- returns "LOST" when the identity was buried, "LAPSED" when its lease is gone, "TRACKED", see below, else a list: look_in,
--   and, when something was taken, the token of the first claim (those of the next rise by one), how many ids each claim has
--   (nothing: one each), all ids, what stands alone under each (nil: nothing does), and a list for each id that has more to
--   tell: its place, retry_count (-1: it never failed), crashes, payload, score, payload, score… look_in: in how many
--   seconds to look again, if nothing rings before ("": not at all). extra: so many claims more where nothing limits the
--   queue. cap: at most so many payloads an id, fewer when there are very many in all. It ends with the id that reaches
--   4 MB, of one or of many: the next claim goes on. An id that failed or crashed before is claimed alone. No payload moves:
--   `due` and `busy` say who holds it, `held` says it of this process. An overdue id of somebody else is free when its
--   holder was buried or has left, else it is looked at again in look_s.
--   tracked: "1" for a queue whose payloads have records: at the end stand the jids of those of each id, "" where one has
--   none. For such a queue any other call is answered "TRACKED" and takes nothing.
-- include base
-- include keys
-- include ordered
-- include ordered_track
local identity, size, cap, look = ARGV[2], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local HELD, leases, tombs = KEYS[2], key('leases'), key('tombs_of')
if redis.call('PEXPIRE', leases .. identity, ARGV[3]) == 0 then  -- the buried have no lease
  return redis.call('EXISTS', tombs .. identity) == 1 and 'LOST' or 'LAPSED'
end
if redis.call('SISMEMBER', key('paused'), queue) == 1 then
  return {''}
end
local now = server_now()
local look_at = as_text(now + look)
local settings = redis.call('HMGET', meta, 'limit', 'defined', 'group_limit', 'separator', 'token', 'track', 'clock', 'ahead', 'back')
if ARGV[9] == '1' then
  track = tracking()
elseif settings[6] then
  return 'TRACKED'
end
keep_time(now, {settings[7], settings[8], settings[9]})
local limit, group_limit = tonumber(settings[1] or settings[2]) or 0, tonumber(settings[3]) or 0
local separator = group_limit > 0 and settings[4]

local gone = {}
local function is_gone(holder)
  if gone[holder] == nil then
    gone[holder] = redis.call('EXISTS', tombs .. holder) == 1
      or (redis.call('EXISTS', leases .. holder) == 0 and not redis.call('ZSCORE', key('identities'), holder))
  end
  return gone[holder]
end

local most = tonumber(ARGV[4])
if limit > 0 then
  for _, member in ipairs(redis.call('ZRANGE', open, '-inf', as_text(now), 'BYSCORE')) do
    if is_gone(string.match(member, '|(.*)$')) then
      redis.call('ZREM', open, member)
    else
      redis.call('ZADD', open, 'XX', look_at, member)
    end
  end
  most = math.min(most, limit - redis.call('ZCARD', open))
else
  most = most + tonumber(ARGV[5])
end

-- Free an overdue id whose holder is gone and was not rescued, as ordered_free would. Whether it ran alone when the
-- holder died is not known here, so no third death is charged. The number of its deaths.
local function free_overdue(id, token, holder, delivered)
  redis.call('HDEL', busy, id)
  if track then
    track.rescued(id, delivered, holder)
  end
  local deaths = tonumber(redis.call('HGET', crash, id) or '0')
  if deaths < 2 then
    deaths = redis.call('HINCRBY', crash, id, 1)
  end
  if redis.call('ZSCORE', next_due, id) then
    release_arrivals(id)
  end
  leave_group(id, settings[4])
  leave_ceiling(token, holder)
  return deaths
end

local filled = {}  -- group → when it is looked at again: met once, its other ids cost two commands each
local function has_room(id, was_due)
  local group = group_of(id, separator)
  if not group then
    return true
  end
  if not filled[group] then
    local inside = base .. 'g:' .. group
    for _, other in ipairs(redis.call('ZRANGE', inside, '-inf', as_text(now), 'BYSCORE')) do
      if redis.call('HEXISTS', busy, other) == 1 then
        redis.call('ZADD', inside, 'XX', look_at, other)
      else
        redis.call('ZREM', inside, other)
      end
    end
    if redis.call('ZCARD', inside) < group_limit then
      redis.call('ZADD', inside, look_at, id)
      redis.call('ZREM', base .. 'k:' .. group, id)
      return true
    end
    filled[group] = redis.call('ZRANGE', inside, 0, 0, 'WITHSCORES')[2]
  end
  redis.call('ZADD', base .. 'k:' .. group, 'NX', was_due, id)  -- put off until one of them leaves
  redis.call('ZADD', due, 'XX', filled[group], id)
  return false
end

-- Claims are formed as ids are found: each is the ids from the place at which it begins to where the next one does.
local ids, taken, dues, retries, deaths = {}, 0, {}, {}, {}
local begins, claims, in_last, is_alone = {}, 0, 0, true
local function fits(alone)
  return taken < 500 and (claims < most or not (alone or is_alone or in_last >= size))
end
local function add(id, was_due, retry_count, crashes)
  local alone = retry_count or crashes
  taken = taken + 1
  if alone or is_alone or in_last >= size then
    claims, in_last = claims + 1, 0
    begins[claims] = taken
  end
  in_last, is_alone = in_last + 1, alone
  ids[taken], dues[taken], retries[taken], deaths[taken] = id, was_due, retry_count, crashes
end

-- One page of what is due; whether another may bring more. What was found is taken, or put off: out of the way.
local more, mine, noted = false, {}, 0  -- mine: ids that were taken from an earlier page
local function look_once()
  for at = noted + 1, taken do
    mine[ids[at]] = true
  end
  noted = taken
  local want = taken + math.min(most * size - taken, 500) + (separator and 33 or 1)
  local found = redis.call('ZRANGE', due, '-inf', as_text(now), 'BYSCORE', 'LIMIT', 0, want, 'WITHSCORES')
  if #found == 0 then
    return false
  end
  local names = {}
  for i = 1, #found, 2 do
    names[#names + 1] = found[i]
  end
  local records = redis.call('HMGET', busy, unpack(names))
  local marked = redis.call('EXISTS', retry, crash) > 0
  local counts = marked and redis.call('ZMSCORE', retry, unpack(names)) or {}
  local crashes = marked and redis.call('HMGET', crash, unpack(names)) or {}
  for i, id in ipairs(names) do
    local token, holder, delivered, _ = nil, nil, nil, nil
    if records[i] then
      token, delivered, _, holder = read_record(records[i])
    end
    if holder and not is_gone(holder) then
      redis.call('ZADD', due, 'XX', look_at, id)
    elseif holder and not mine[id] and redis.call('ZSCORE', next_due, id) and not may_release(id, delivered) then
      redis.call('ZADD', due, 'XX', as_text(now + 0.05), id)  -- too much for one call; the next one goes on with it
    elseif not mine[id] then
      if not fits(counts[i] or crashes[i] or holder) then
        more = true
        return false
      end
      local died = crashes[i]
      if holder then
        died = free_overdue(id, token, holder, delivered)
      end
      if not separator or has_room(id, found[2 * i]) then
        add(id, found[2 * i], counts[i], died)
      end
    end
  end
  more = #names == want
  return more
end
for _ = 1, most > 0 and 20 or 0 do
  if not look_once() then
    break
  end
end

-- The first payloads of a pile with their scores; all piles together give at most 10,000 or, about, 4 MB.
local numbers = 10000
local function first_of(set)
  local found, count = some_of(base .. set, math.min(math.max(numbers, 1), cap), 1)
  numbers = numbers - count
  return found
end

-- The payload that stands alone under an id, false when none does: few are read at once.
local singles, read_until = {}, 0
local function single_of(at)
  if at > read_until then
    local found = redis.call('HMGET', sole, unpack(ids, at, math.min(at + AT_ONCE - 1, taken)))
    for place, one in ipairs(found) do
      singles[read_until + place] = one
    end
    read_until = read_until + #found
  end
  read_bytes = read_bytes + (singles[at] and #singles[at] or 0)
  return singles[at]
end

local given = 0  -- so many of the ids are in the answer; what has no room there is not taken
local function has_bytes()
  return given == 0 or read_bytes < MOST_BYTES
end
local records, looks, held, rare, jids = {}, {}, {}, {}, track and {}
local function begin(at, bodies, token)
  jids[at] = track.began(ids[at], bodies, token, string.format('%d', (retries[at] or -1) + 2), identity)
end

-- What stands under an id that is no single payload of one that never failed; how many payloads its holder has in hand.
local function give_rare(at, single)
  local told = {at, retries[at] or '-1', deaths[at] or 0}
  rare[#rare + 1] = told
  if single then
    return 0
  end
  local payloads = first_of('p:' .. ids[at])
  for place = 1, #payloads do
    told[3 + place] = payloads[place]
  end
  return #payloads / 2, payloads
end
local tail = '|' .. identity
local function give(at, token)
  local id, single, others, payloads = ids[at], single_of(at), 0, nil
  if not single or retries[at] or deaths[at] then
    others, payloads = give_rare(at, single)
  end
  if track then
    local bodies = others > 0 and {}
    for place = 1, others do
      bodies[place] = payloads[2 * place - 1]
    end
    begin(at, bodies, token)
  end
  local k = 2 * at - 1
  records[k], records[k + 1] = id, token .. (others == 0 and '|0|' or '|' .. others .. '|') .. dues[at] .. tail
  looks[k], looks[k + 1] = look_at, id
  held[k], held[k + 1] = id, token
  given = at
end

local answer = {''}
local function give_all()
  local token, counts = math.max(math.floor(now * 1000000), tonumber(settings[5] or '0') + 1), {}
  local first, last = token, token - 1
  begins[claims + 1] = taken + 1
  for number = 1, claims do
    if not has_bytes() then
      break
    end
    local name, at = string.format('%d', token), begins[number]
    repeat
      give(at, name)
      at = at + 1
    until at == begins[number + 1] or not has_bytes()
    counts[number] = at - begins[number]
    if limit > 0 then
      redis.call('ZADD', open, look_at, name .. tail)
    end
    token, last = token + 1, token
  end
  records[2], held[2] = records[2] .. WIDE, held[2] .. WIDE  -- one in a command is enough
  redis.call('HSET', meta, 'token', string.format('%d', last))
  redis.call('HSET', busy, unpack(records))
  redis.call('ZADD', due, 'XX', unpack(looks))
  redis.call('HSET', HELD, unpack(held))
  for at = given + 1, taken do
    leave_group(ids[at], separator)
    more, ids[at], singles[at] = true, nil, nil
  end
  answer = {'', string.format('%d', first), given > #counts and counts or {}, ids, singles, rare, jids or nil}
end
if taken > 0 then
  give_all()
end
local head = as_text(now)
if limit > 0 and redis.call('ZCARD', open) >= limit then  -- whoever leaves rings; until then no id may be taken
  head = redis.call('ZRANGE', open, 0, 0, 'WITHSCORES')[2]
elseif more then
  ring()  -- pass it on: one sleeper wakes the next
else
  head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or ''
end
if track then
  track.done()
end
answer[1] = head ~= '' and as_text(math.max(tonumber(head) - now, 0)) or ''
return answer
