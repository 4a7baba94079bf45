module bulrush.dev/tests/agent

go 1.26

require github.com/golang/snappy v1.0.0
