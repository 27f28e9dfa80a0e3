package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// figure is one number that the project promises, beside its bound.
type figure struct {
	// name says what was measured, got and yardstick the two sides as text; yardstick may be empty.
	name, got, yardstick string
	// value is compared with bound; both are in unit.
	value, bound float64
	unit         string
	// atLeast: value shall not be below bound; otherwise it shall not be above.
	atLeast bool
}

func (f figure) ok() bool {
	if f.atLeast {
		return f.value >= f.bound
	}
	return f.value <= f.bound
}

// report collects the figures of a run and prints as it goes.
type report struct {
	out     io.Writer
	figures []figure
}

func (r *report) printf(format string, args ...any) { fmt.Fprintf(r.out, format, args...) }

// section starts an experiment, with how busy the machine is: figures of a busy one say little.
func (r *report) section(name string) {
	avg, err := loadAverage()
	if err != nil {
		avg = "unknown"
	}
	r.printf("\n== %s (load average %s)\n", name, avg)
}

func (r *report) add(f figure) { r.figures = append(r.figures, f) }

// table prints rows of tab-separated cells in columns.
func (r *report) table(rows []string) {
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, row)
	}
	_ = w.Flush() // a terminal that went away takes no message either
}

// close prints all figures and reports whether every bound held.
func (r *report) close() bool {
	r.printf("\n== figures\n")
	rows := []string{"figure\tmeasured\tyardstick\tvalue\tbound\t"}
	all := true
	for _, f := range r.figures {
		word, verdict := "at most", "ok"
		if f.atLeast {
			word = "at least"
		}
		if !f.ok() {
			verdict, all = "MISSED", false
		}
		rows = append(rows, strings.Join([]string{f.name, f.got, f.yardstick,
			number(f.value) + f.unit, word + " " + number(f.bound) + f.unit, verdict}, "\t"))
	}
	r.table(rows)
	return all
}

// number prints three significant digits and no exponent.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
