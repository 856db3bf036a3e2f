# Ruby's Sidekiq, told what to do: one JSON line {"code": ..., "args": [...]} in, one line out. The code sees args as a.
require_relative "jobs"

answers = $stdout.dup
answers.sync = true
$stdout.reopen($stderr) # whatever else is printed is no answer
Sidekiq.logger.level = Logger::FATAL

def run(code, a)
  {value: eval(code, binding)} # rubocop:disable Security/Eval -- the tests' own words
rescue Exception => error
  {error: "#{error.class}: #{error.message}", backtrace: (error.backtrace || []).first(10)}
end

answers.puts JSON.generate(value: "ready")
while (line = $stdin.gets)
  request = JSON.parse(line)
  answers.puts JSON.generate(run(request["code"], request["args"]))
end
