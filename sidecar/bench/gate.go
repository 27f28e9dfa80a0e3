package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	inboxv1 "github.com/sidehook/sidehook/pb/sidehook/inbox/v1"
	"github.com/sidehook/sidehook/sidecar/envoytest"
)

const (
	// settleTime is what the issue grants between the last answer and the last claim's DONE.
	settleTime = 2 * time.Second
	// settleEvery is how often the inbox is asked meanwhile.
	settleEvery = 20 * time.Millisecond
	// warmUp is posted to every way once, uncounted: connections, pools and the store's first pages.
	warmUp = 2000
)

// way is one thing that can stand behind Envoy's ext_authz, with an Envoy of its own.
type way struct {
	name string
	// source are fields of sidehook's source; nil: a service that allows everything stands there.
	source map[string]any
	// dropLog and logAll change Envoy's access log, as edit says.
	dropLog, logAll bool
	// patience is what the last event may take to settle after a turn.
	patience time.Duration
	// gate is the process that answers Check; sidehook is the same where it is one.
	gate     *child
	sidehook *sidehook
	// settled is the state that all claims must have reached after a turn.
	settled inboxv1.EventState
	envoy   *envoytest.Envoy
	listen  string
	// posted counts the events so far, warm-up included.
	posted int
	turns  []turn
}

// turn is one measured run of load through a way.
type turn struct {
	load loadResult
	// settled is how long after the last answer the last claim had settled.
	settled time.Duration
	// cpu is the processor time per request of each part.
	gate, envoy, app, loader time.Duration
	// others is the share of the machine, in processors, that went to processes which are not part of this.
	others float64
}

// gateBench measures whole requests through a real Envoy: sidehook against a service that allows everything.
type gateBench struct {
	out      *report
	folder   string
	binary   string
	requests int
	pairs    int
	conns    int
	// profile, if set, is a folder for a processor profile of sidehook.
	profile string

	app     *child
	appAddr string
	ways    []*way
}

// gate is the experiment.
func gate(ctx context.Context, s settings, b bounds, folder string, out *report) (err error) {
	g := newGateBench(s, folder, out)
	defer func() { err = errors.Join(err, g.stop()) }()
	if err := g.startApp(ctx); err != nil {
		return err
	}
	const done = inboxv1.EventState_EVENT_STATE_DONE
	g.ways = []*way{
		{name: "allow-all", dropLog: true},
		{name: "sidehook", source: map[string]any{"confirm": "ACCESS_LOG"}, settled: done, patience: settleTime},
		{name: "sidehook, not confirmed", source: map[string]any{"confirm": "ACCESS_LOG"}, dropLog: true,
			settled: inboxv1.EventState_EVENT_STATE_PENDING, patience: settleTime},
		{name: "sidehook, EXT_PROC", source: map[string]any{"confirm": "EXT_PROC"}, settled: done, patience: settleTime},
		{name: "allow-all, log dropped", logAll: true},
	}
	if err := g.run(ctx); err != nil {
		return err
	}
	g.figure("through Envoy, each claim confirmed", g.ways[1], b.gate)
	return g.writeProfile(ctx, g.ways[1])
}

func newGateBench(s settings, folder string, out *report) *gateBench {
	return &gateBench{out: out, folder: folder, binary: s.sidehook, requests: s.requests, pairs: s.pairs, conns: s.conns, profile: s.profile}
}

// startApp starts the app that all ways have.
func (g *gateBench) startApp(ctx context.Context) (err error) {
	if g.app, err = startRole(ctx, "app"); err != nil {
		return err
	}
	g.appAddr, err = g.app.line()
	return err
}

// run measures the ways, of which the first is the yardstick, and prints what came of it.
func (g *gateBench) run(ctx context.Context) error {
	// All of them run all the time; those without a turn are idle.
	for i, w := range g.ways {
		if err := g.start(ctx, i, w); err != nil {
			return fmt.Errorf("start %s: %w", w.name, err)
		}
	}
	for _, w := range g.ways {
		if _, err := g.turn(ctx, w, warmUp, nil); err != nil {
			return fmt.Errorf("warm up %s: %w", w.name, err)
		}
	}
	for i := range g.pairs {
		for j := range g.ways {
			// Every other round goes backwards, so that none always follows the same neighbour.
			if i%2 == 1 {
				j = len(g.ways) - 1 - j
			}
			w := g.ways[j]
			t, err := g.turn(ctx, w, g.requests, nil)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			w.turns = append(w.turns, t)
		}
	}
	g.print()
	return nil
}

func (g *gateBench) start(ctx context.Context, index int, w *way) error {
	folder := filepath.Join(g.folder, strconv.Itoa(index))
	config, err := configure(folder, w.source, nil)
	if err != nil {
		return err
	}
	listen, err := envoytest.FreeAddrs(1)
	if err != nil {
		return err
	}
	w.listen = listen[0]
	bootstrap, err := config.bootstrap(ctx, g.binary, w.listen, g.appAddr)
	if err != nil {
		return err
	}
	change := edit{from: config.gate, to: config.gate, dropLog: w.dropLog, logAll: w.logAll}
	if w.source == nil {
		if w.gate, err = startRole(ctx, "allow-all"); err != nil {
			return err
		}
		if change.to, err = w.gate.line(); err != nil {
			return err
		}
	} else {
		if err := config.start(ctx, g.binary); err != nil {
			return err
		}
		w.sidehook, w.gate = config, config.child
	}
	if bootstrap, err = change.apply(bootstrap); err != nil {
		return err
	}
	w.envoy, err = envoytest.Start(ctx, envoytest.Options{Bootstrap: bootstrap, Folder: folder})
	return err
}

func (g *gateBench) stop() error {
	var errs []error
	for _, w := range g.ways {
		if w.envoy != nil {
			errs = append(errs, w.envoy.Stop())
		}
		if w.gate != nil {
			errs = append(errs, w.gate.stop())
		}
	}
	if g.app != nil {
		errs = append(errs, g.app.stop())
	}
	return errors.Join(errs...)
}

// turn posts n fresh events through a way and waits until their claims have settled. during, if set, runs beside it.
func (g *gateBench) turn(ctx context.Context, w *way, n int, during func()) (t turn, err error) {
	loader, err := startRole(ctx, "load", "-addr", w.listen, "-n", strconv.Itoa(n), "-conns", strconv.Itoa(g.conns))
	if err != nil {
		return turn{}, err
	}
	defer func() { err = errors.Join(err, loader.stop()) }()
	if _, err := loader.line(); err != nil { // signed, ready
		return turn{}, err
	}
	pids := []int{w.gate.pid(), w.envoy.PID(), g.app.pid(), loader.pid(), os.Getpid()}
	before, err := usage(pids)
	if err != nil {
		return turn{}, err
	}
	began := time.Now()
	if _, err := loader.stdin.Write([]byte("go\n")); err != nil {
		return turn{}, err
	}
	if during != nil {
		during()
	}
	line, err := loader.line()
	if err != nil {
		return turn{}, err
	}
	ended := time.Now()
	after, err := usage(pids)
	if err != nil {
		return turn{}, err
	}
	if err := json.Unmarshal([]byte(line), &t.load); err != nil {
		return turn{}, fmt.Errorf("read the load's result: %w", err)
	}
	if t.load.Status[200] != n {
		return turn{}, fmt.Errorf("of %d requests not all were answered 200: %v", n, t.load.Status)
	}
	each := func(i int) time.Duration { return (after.of[i] - before.of[i]) / time.Duration(n) }
	t.gate, t.envoy, t.app, t.loader = each(0), each(1), each(2), each(3)
	foreign := after.machine - before.machine
	for i := range pids {
		foreign -= after.of[i] - before.of[i]
	}
	t.others = max(0, foreign.Seconds()/ended.Sub(began).Seconds())
	w.posted += n
	if w.sidehook != nil {
		t.settled, err = g.settle(ctx, w, ended)
	}
	return t, err
}

// settle waits until all claims of a way have reached their state and returns when that was, counted from ended.
func (g *gateBench) settle(ctx context.Context, w *way, ended time.Time) (time.Duration, error) {
	for {
		states, err := w.sidehook.states(ctx)
		if err != nil {
			return 0, err
		}
		took := time.Since(ended)
		if states[w.settled] == int64(w.posted) {
			return took, nil
		}
		if took > w.patience {
			return 0, fmt.Errorf("%s after the end %d of %d claims are %s: %v", w.patience, states[w.settled], w.posted,
				w.settled, states)
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(settleEvery):
		}
	}
}

// used is processor time at one moment: of some processes, in their order, and of the whole machine.
type used struct {
	of      []time.Duration
	machine time.Duration
}

func usage(pids []int) (used, error) {
	var u used
	for _, pid := range pids {
		d, err := cpuTime(pid)
		if err != nil {
			return used{}, err
		}
		u.of = append(u.of, d)
	}
	var err error
	u.machine, err = machineBusy()
	return u, err
}
