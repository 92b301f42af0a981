"""What a server process counts of itself."""

from treadle.server.metrics import Histogram, Metrics


def test_a_histogram_counts_each_value_in_every_bound_that_it_does_not_exceed():
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.add(value)
    assert list(histogram.lines("lag")) == [
        'lag_bucket{le="0.1"} 2',
        'lag_bucket{le="1.0"} 3',
        'lag_bucket{le="+Inf"} 4',
        "lag_sum 7.650000",
        "lag_count 4",
    ]


def test_the_text_names_each_metric_once_with_its_type_and_holds_every_count():
    metrics = Metrics()
    metrics.request("get_task", 200, 0.003)
    metrics.request("get_task", 200, 0.2)
    metrics.request("get_task", 404, 0.001)
    metrics.lag(0.02)
    metrics.adopted += 2
    lines = metrics.text(streams=3, driven=4, refused=5).splitlines()
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert types == [
        "treadle_requests_total",
        "treadle_request_seconds",
        "treadle_event_lag_seconds",
        "treadle_streams",
        "treadle_tasks_driven",
        "treadle_tasks_adopted_total",
        "treadle_commits_refused_total",
    ]
    for expected in (
        'treadle_requests_total{operation="get_task",status="200"} 2',
        'treadle_requests_total{operation="get_task",status="404"} 1',
        'treadle_request_seconds_bucket{operation="get_task",le="0.005"} 2',
        'treadle_request_seconds_count{operation="get_task"} 3',
        "treadle_event_lag_seconds_count 1",
        "treadle_streams 3",
        "treadle_tasks_driven 4",
        "treadle_tasks_adopted_total 2",
        "treadle_commits_refused_total 5",
    ):
        assert expected in lines
