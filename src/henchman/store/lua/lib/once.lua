-- What `once` remembers of the jobs of keys: how each ended. It is kept in generations of half of `once_for`, so that a
-- whole generation is forgotten at once; three of them are looked at, and the next. Of a key 10 bytes of a digest are kept, of a jid 12
-- bytes; one that is no hex stands as it is, behind a capital letter.
local ONCE_GENERATIONS = {0, 1, -1, -2}  -- that are looked at: 1 was written to before the clock went back
local ONCE_BUCKETS = 16384  -- so that each hash stays small, and is stored without an index

-- Digits `first` to `last` of a hexadecimal text, at most twelve, as a number.
local function digits(hex, first, last)
  return tonumber(string.sub(hex, first, last), 16)
end

-- How the names of the hashes go on, generation by generation; made once a call.
local beginnings, kept_ms = {}, {}
local function once_beginnings(once_for)
  local now = server_now()
  local generation, made = math.floor(now * 2 / once_for), {}
  for place, off in ipairs(ONCE_GENERATIONS) do
    made[place] = string.format('%d:%d:', once_for, generation + off)
  end
  beginnings[once_for], kept_ms[once_for] = made, math.ceil(((generation + 3) * once_for / 2 - now) * 1000)
  return made
end

local function once_place(scope, name, once_for)
  local digest = redis.sha1hex(scope .. '\n' .. name)
  local field = struct.pack('>I5I5', digits(digest, 1, 10), digits(digest, 11, 20))
  return field, digits(digest, 21, 24) % ONCE_BUCKETS, beginnings[once_for] or once_beginnings(once_for)
end

-- s, f or x (over without success), the jid, and for how many milliseconds that is kept; nothing when nothing is remembered.
local function once_look(scope, name, once_for)
  local field, bucket, starts = once_place(scope, name, once_for)
  for _, start in ipairs(starts) do
    local once_memory = key('once') .. start .. bucket
    local value = redis.call('HGET', once_memory, field)
    if value then
      local letter, jid = string.sub(value, 1, 1), string.sub(value, 2)
      if letter ~= string.upper(letter) then  -- packed
        jid = string.format('%08x%08x%08x', struct.unpack('>I4I4I4', jid))
      end
      return string.lower(letter), jid, redis.call('PTTL', once_memory)
    end
  end
end

-- `packed`: who tells of the end has digest (12 bytes) and jid (12) ready, or nothing.
local function once_remember(scope, name, once_for, letter, jid, packed)
  local field, bucket, starts, value
  if packed then
    local high, low = string.byte(packed, 11, 12)
    field, bucket, value = string.sub(packed, 1, 10), (high * 256 + low) % ONCE_BUCKETS, letter .. string.sub(packed, 13)
    starts = beginnings[once_for] or once_beginnings(once_for)
  else
    field, bucket, starts = once_place(scope, name, once_for)
    if #jid == 24 and not string.find(jid, '[^0-9a-f]') then
      value = letter .. struct.pack('>I6I6', digits(jid, 1, 12), digits(jid, 13, 24))
    end
  end
  local once_memory = key('once') .. starts[1] .. bucket
  redis.call('HSET', once_memory, field, value or string.upper(letter) .. jid)
  redis.call('PEXPIRE', once_memory, kept_ms[once_for])
end
