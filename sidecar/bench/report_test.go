package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestReportClose(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		figures []figure
		want    bool
		word    string
	}{
		{"both on their bound", []figure{{name: "a", value: 2, bound: 2}, {name: "b", value: 0.6, bound: 0.6, atLeast: true}}, true, "ok"},
		{"above what it may be", []figure{{name: "a", value: 2.01, bound: 2}}, false, "MISSED"},
		{"below what it must be", []figure{{name: "a", value: 0.59, bound: 0.6, atLeast: true}}, false, "MISSED"},
		{"one of two", []figure{{name: "a", value: 9, bound: 2}, {name: "b", value: 1, bound: 2}}, false, "MISSED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			r := &report{out: &out}
			for _, f := range tt.figures {
				r.add(f)
			}
			if got := r.close(); got != tt.want || !strings.Contains(out.String(), tt.word) {
				t.Errorf("close = %t, want %t; printed:\n%s", got, tt.want, &out)
			}
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		run  string // names of the experiments; empty: refused
		ids  int
	}{
		{"all", nil, "binary idle verify inprocess gate ids accept deliver prompt backlog store worker order", 10_000_000},
		{"short", []string{"-ci"}, "binary idle verify inprocess gate ids accept deliver prompt backlog store worker order", 200_000},
		{"short, one size given", []string{"-ci", "-n", "5"}, "binary idle verify inprocess gate ids accept deliver prompt backlog store worker order", 5},
		{"in their own order", []string{"-run", "gate,binary"}, "binary gate", 10_000_000},
		{"no such experiment", []string{"-run", "gates"}, "", 0},
		{"a size of nothing", []string{"-conns", "0"}, "", 0},
		{"leftover words", []string{"gate"}, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, chosen, err := parse(tt.args, io.Discard)
			if tt.run == "" {
				if err == nil {
					t.Fatal("parse took it")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range chosen {
				names = append(names, e.name)
			}
			if got := strings.Join(names, " "); got != tt.run || s.ids != tt.ids {
				t.Errorf("parse = %q with %d ids, want %q with %d", got, s.ids, tt.run, tt.ids)
			}
		})
	}
}
