-- A duty that one process at a time has: whether `identity` has it for the next `ms` milliseconds. The first write is a
-- removal or an expiry, which a full server accepts. A lease of another that would last longer than it was given for
-- is from before the server's clock went back: it ends in time all the same.
local function lead(key, identity, ms)
  local holder = redis.call('GET', key)
  if holder == identity then
    redis.call('PEXPIRE', key, ms)
  elseif not holder then
    redis.call('DEL', key)
    redis.call('SET', key, identity, 'PX', ms)
  elseif redis.call('PTTL', key) > tonumber(ms) then
    redis.call('PEXPIRE', key, ms)
  end
  return not holder or holder == identity
end
