-- The name by which the line of a tenant of a fair queue is read, as a queue.
local function line_name(queue, level, tenant)
  if tenant == '' then
    return queue .. '+' .. level
  end
  return queue .. (level == 'normal' and '@' or '+' .. level .. '@') .. tenant
end
