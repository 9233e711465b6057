from omnistage.runtime.executor.backoff import Backoff


def test_delays_double_up_to_a_limit_and_start_over_after_a_good_run():
    now_s = [0.0]
    backoff = Backoff(1.0, 5.0, 60.0, lambda: now_s[0])
    assert [backoff.died() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    backoff.came_up()
    now_s[0] = 10.0
    assert backoff.died() == 5.0, "ten seconds are no good run"
    backoff.came_up()
    now_s[0] = 70.0
    assert backoff.died() == 1.0
