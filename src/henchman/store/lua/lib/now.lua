local function server_now()
  local t = redis.call('TIME')
  return tonumber(t[1]) + tonumber(t[2]) / 1000000
end

-- A time as a score or JSON number: seconds with microseconds, always with a decimal point.
local function as_text(seconds)
  return string.format('%.6f', seconds)
end
