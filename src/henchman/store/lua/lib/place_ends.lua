-- The plain ends of jobs with places. `finish_places` takes the text of one, '~', name and whose of each limit on lines of
-- their own, an empty line, jid and the heir of its places or nothing (work/effects.py: it went well, and nothing else
-- hangs on it), and `free_places` carries out those of a call together. The heir, who began in this process as the job
-- ended, has its place if it waits behind it still: most heirs of a call have ended in the same call.
local MOST_FREED = 500  -- of one group: what is unpacked is that long
local place_ends, freed_groups = {}, {}

-- false: the text is something else.
local function finish_places(payload, ending, text)
  local head, jid, heir = string.match(text, '^~(.*)\n\n(%w+) (%w*)$')
  if not head then
    return false
  end
  local ends = place_ends[head]
  if not ends or #ends.jids >= MOST_FREED then
    ends = {head = head, jids = {}, heirs = {}, payloads = {}, ending = ending}
    place_ends[head], freed_groups[#freed_groups + 1] = ends, ends
  end
  local place = #ends.jids + 1
  ends.jids[place], ends.heirs[place], ends.payloads[place] = jid, heir, payload
  return true
end

-- Those who were handed a place and have not ended here.
local function heirs_alive(ends)
  local ended, found = {}, {}
  for _, jid in ipairs(ends.jids) do
    ended[jid] = true
  end
  for _, heir in ipairs(ends.heirs) do
    if heir ~= '' and not ended[heir] then
      found[#found + 1] = heir
    end
  end
  return found
end

local function free_together(ends, hand)
  local heirs, fields, now = heirs_alive(ends), {}, as_text(server_now())
  for at, waits in ipairs(#heirs > 0 and redis.call('SMISMEMBER', key('behind'), unpack(heirs)) or {}) do
    if waits == 1 then
      fields[#fields + 1], fields[#fields + 2] = heirs[at], '0 ' .. now
    end
  end
  for name, by in string.gmatch(ends.head, '([^\n]+)\n([^\n]*)\n?') do
    local places_key, waiting_line = key('slots') .. name .. ':' .. by, key('awaits') .. 's' .. name .. '\n' .. by
    local free = redis.call('HDEL', places_key, unpack(ends.jids))
    local passed = math.min(free, #fields / 2)
    if passed > 0 then
      redis.call('HSET', places_key, unpack(fields, 1, 2 * passed))
    end
    if free > passed and redis.call('EXISTS', waiting_line) == 1 then
      hand(name, by)
    end
    if redis.call('EXISTS', places_key) == 0 then
      local taken_key = key('limited') .. name
      redis.call('SREM', taken_key, by)
    end
  end
  redis.call('SREM', key('behind'), unpack(ends.jids))
end

-- Where they cannot be freed together each is freed alone, and what fails then is told.
local function free_places(hand, note)
  for _, ends in ipairs(freed_groups) do
    if not pcall(free_together, ends, hand) then
      for place, payload in ipairs(ends.payloads) do
        local one = {head = ends.head, jids = {ends.jids[place]}, heirs = {ends.heirs[place]}}
        local done, problem = pcall(free_together, one, hand)
        if not done then
          note(payload, ends.ending, '~' .. ends.head .. '\n\n' .. one.jids[1] .. ' ' .. one.heirs[1], problem)
        end
      end
    end
  end
end
