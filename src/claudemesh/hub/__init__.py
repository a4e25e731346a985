"""The State Hub: rows of a few kinds with revisions, and a journal of every write.

model policy rendering   values; what a write makes of a row; how rows, conflicts and pages are written
draft                    what one transaction will write, decided before its first statement
bodies http              what may be sent, and the table of routes
ports stores             what a store must do; SQLite and PostgreSQL
service events metering  a write and what is told of it
settings app             all of it put together, and the order in which it stops
"""
