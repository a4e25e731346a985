"""In what starts Spark: the Java that is taken, and what a killed run leaves behind."""

from tests.requirements import Fault

_JAVA = "tests/unit/pipeline/test_java.py"
_SESSION = "tests/unit/pipeline/test_session.py"
_STARTS = "tests/spark/test_session.py"

MUTANTS: tuple[Fault, ...] = (
    Fault(
        what="Whoever presses Ctrl-C now and then sees a traceback of py4j.",
        file="pipeline/session.py",
        old='    logging.getLogger("py4j").propagate = False\n',
        new="",
        test=f"{_SESSION}::test_what_py4j_says_of_an_interrupt_is_kept_quiet_and_what_others_say_is_not",
    ),
    Fault(
        what="A Java that is there is taken, however old.",
        file="pipeline/java.py",
        old="int(found[1]) >= OLDEST",
        new="int(found[1])",
        test=f"{_JAVA}::test_one_that_is_old_or_broken_is_passed_over",
    ),
    Fault(
        what="Java 8 passes for Java 1, or for something else.",
        file="pipeline/java.py",
        old='version "(?:1\\.)?(\\d+)',
        new='version "(\\d+)',
        test=f"{_JAVA}::test_a_java_is_judged_by_its_answer",
    ),
    Fault(
        what="Spark's words for its Java are cut at their blanks.",
        file="pipeline/java.py",
        old='set -- "$@" "$word"',
        new='set -- "$@" $word',
        test=f"{_JAVA}::test_spark_gets_it_with_its_words_and_without_the_module_that_the_wheel_lacks",
    ),
    Fault(
        what="A start takes the directories of the runs beside it away.",
        file="pipeline/session.py",
        old="            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        new="",
        test=f"{_SESSION}::test_what_nobody_holds_is_swept_and_what_is_held_or_not_ours_stays",
    ),
    Fault(
        what="A variable that was not set before stays set.",
        file="runtime/environment.py",
        old="os.environ.pop(name, None)",
        new="pass",
        test=f"{_SESSION}::test_what_was_set_for_a_library_is_as_before_afterwards",
    ),
    Fault(
        what="Whoever presses Ctrl-C while Spark starts leaves a JVM that never ends.",
        file="pipeline/session.py",
        old="        if self.process is not None:\n            _end(self.process)\n",
        new="",
        test=f"{_STARTS}::test_an_interrupt_of_a_start_leaves_neither_a_jvm_nor_a_directory",
    ),
    Fault(
        what="A Ctrl-C just before a start has its JVM leaves the directory that was made for it.",
        file="pipeline/session.py",
        old="            shutil.rmtree(self.place, ignore_errors=True)\n",
        new="            pass\n",
        test=f"{_STARTS}::test_an_interrupt_of_a_start_leaves_neither_a_jvm_nor_a_directory",
    ),
    Fault(
        what="Whoever presses Ctrl-C again waits for a JVM that does not answer.",
        file="pipeline/session.py",
        old="os.killpg(self.process.pid, signal.SIGKILL)\n        elif",
        new="pass\n        elif",
        test=f"{_STARTS}::test_a_second_interrupt_ends_a_jvm_that_does_not_answer_at_once",
    ),
)
