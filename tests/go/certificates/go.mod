module certificates

go 1.26
