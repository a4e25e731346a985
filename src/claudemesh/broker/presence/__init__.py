"""Who is there: leases that outlive their sockets. Pure rules in `policy`, what comes and goes in the others.

model      the values
policy     what a hello does to the leases of its key, and what is announced
tokens     resume tokens: made, rotated, judged
standstill a process that did not run: no time has passed for others
watchdog   pings, and the end of connections that fell silent
herald     leases that ran out, and who is told of those who come and go
peers      what is shown of those who are there
"""
