-- An id leaves its ordered queue by hand.
local separator = redis.call('HGET', meta, 'separator')
local function reset_failures(id)
  redis.call('HDEL', crash, id)
  redis.call('HDEL', errors, id)
  redis.call('ZREM', retry, id)
end

-- What waits is gone; so is its place among those that a group put off, or it would be woken at a time of before.
local function leave_the_queue(id)
  reset_failures(id)
  redis.call('HDEL', sole, id)
  redis.call('UNLINK', base .. 'p:' .. id)
  redis.call('ZREM', due, id)
  local group = group_of(id, separator)
  if group then
    redis.call('ZREM', base .. 'k:' .. group, id)
  end
end
