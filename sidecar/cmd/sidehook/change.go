package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
)

// changeFlags are the flags that redeliver and discard have in both halves.
type changeFlags struct {
	admin  adminFlags
	format outputFlag
	rate   float64
	dryRun bool
	wait   bool
}

// register adds the flags to c.
func (o *changeFlags) register(c *cobra.Command) {
	o.admin.register(c)
	o.format.register(c)
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "count what the filters select, and do nothing")
	c.Flags().BoolVar(&o.wait, "wait", false, "follow the job until it has ended; exit code 1 if it was cancelled")
}

// registerRate adds the flag that a redelivery has.
func (o *changeFlags) registerRate(c *cobra.Command, things string) {
	c.Flags().Float64Var(&o.rate, "rate", 0, "make `N` "+things+" due per second (default 100)")
}

// change is a redelivery or a discard: of what ids name, or of what filters select.
type change struct {
	verb   string // what is done to each: redelivered, discarded
	filter *selectFlags
	ids    []string
	jobs   jobAPI
	// named does it to what ids name, and returns the answer and what it says of each. selected starts a job, or counts.
	named    func(ctx context.Context, client *adminClient) (proto.Message, []changed, error)
	selected func(ctx context.Context, client *adminClient) (proto.Message, *job, int64, error)
}

// changed is what became of one that was named. problem is empty where it was done.
type changed struct {
	cells       []string // what names it, in the columns of the change
	before, now string
	problem     string
}

// run does it; columns are the header over changed.cells.
func (o *changeFlags) run(ctx context.Context, std stdio, ch change, columns ...string) error {
	if len(ch.ids) > 0 {
		for _, f := range append(ch.filter.given(), flagSet{"rate", o.rate != 0}, flagSet{"dry-run", o.dryRun}, flagSet{"wait", o.wait}) {
			if f.set {
				return usagef("--%s is for what filters select, and ids are given", f.name)
			}
		}
	} else if ch.filter.none() {
		return usagef("say which: ids, or filters such as --type")
	}
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	if len(ch.ids) > 0 {
		res, all, err := ch.named(ctx, client)
		if err != nil {
			return err
		}
		return o.printChanged(std, ch.verb, res, all, columns)
	}
	res, j, matched, err := ch.selected(ctx, client)
	if err != nil {
		return err
	}
	if j != nil && o.wait {
		if !o.format.structured() {
			if err := j.print(std.out); err != nil {
				return err
			}
		}
		return followJob(ctx, std, o.format, client, ch.jobs, j)
	}
	switch {
	case o.format.structured():
		return o.format.print(std.out, res)
	case o.dryRun:
		_, err = fmt.Fprintf(std.out, "%d would be %s\n", matched, ch.verb)
		return err
	}
	return j.print(std.out)
}

// printChanged prints what became of those that were named; res is that for programs.
func (o *changeFlags) printChanged(std stdio, verb string, res proto.Message, all []changed, columns []string) error {
	failed := 0
	rows := make([][]string, len(all))
	for i, r := range all {
		what := verb
		if r.problem != "" {
			what = r.problem
			failed++
		}
		rows[i] = append(r.cells, r.before, r.now, what)
	}
	var err error
	if o.format.structured() {
		err = o.format.print(std.out, res)
	} else {
		err = table(std.out, append(columns, "BEFORE", "NOW", "RESULT"), rows)
	}
	if err == nil && failed > 0 {
		return no(fmt.Errorf("%d of %d could not be %s", failed, len(rows), verb))
	}
	return err
}
