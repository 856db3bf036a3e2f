-- Add to a counter that counts for ever, and to that of a day (in UTC), which is kept for five years. A counter that was
-- overwritten must not hide what was settled.
local function add_to_stat(total, day, by)
  if by > 0 then
    local of_day = total .. ':' .. day
    redis.pcall('INCRBY', total, by)
    if redis.pcall('INCRBY', of_day, by) == by then
      redis.pcall('EXPIRE', of_day, 157680000)
    end
  end
end
