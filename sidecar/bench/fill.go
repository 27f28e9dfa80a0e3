package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// keyHeader and numberHeader say which events come one after the other, and in which order they were stored.
	keyHeader    = "x-key"
	numberHeader = "x-number"
	// storeCallers ask the gate at one time.
	storeCallers = 128
)

// fillMain is the fill child: it asks the gate what Envoy would ask about n signed events, so that a source in STORE keeps them,
// and prints a loadResult. With keys the event i is of the key i modulo that number, and those of a key come in their order.
func fillMain(args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("fill", flag.ContinueOnError)
	addr := flags.String("addr", "", "host:port of the gate")
	n := flags.Int("n", 1000, "events")
	keys := flags.Int("keys", 0, "keys; 0: none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+*addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	var kept atomic.Int64
	errs := make([]error, storeCallers)
	var wg sync.WaitGroup
	start := time.Now()
	for caller := range storeCallers {
		wg.Go(func() {
			sign, gate := newSigner(), auth.NewAuthorizationClient(conn)
			for i := range mine(caller, *n, *keys) {
				if errs[caller] = fillOne(gate, sign, i, *keys); errs[caller] != nil {
					return
				}
				kept.Add(1)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(loadResult{Requests: int(kept.Load()), Elapsed: time.Since(start), Status: map[int]int{200: int(kept.Load())}})
}

// mine are the events that fall to a caller: with keys, all those of each of its keys.
func mine(caller, n, keys int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		if keys == 0 {
			keys = storeCallers
		}
		for round := 0; round < n; round += keys {
			for i := round + caller; i < min(round+keys, n); i += storeCallers {
				if !yield(i) {
					return
				}
			}
		}
	}
}

func fillOne(gate auth.AuthorizationClient, sign *signer, i, keys int) error {
	req := sign.checkRequest(time.Now())
	if keys > 0 {
		h := req.GetAttributes().GetRequest().GetHttp().GetHeaderMap()
		h.Headers = append(h.Headers, raw(keyHeader, strconv.Itoa(i%keys)), raw(numberHeader, strconv.Itoa(i/keys)))
	}
	res, err := gate.Check(context.Background(), req)
	if err != nil {
		return err
	}
	if code := res.GetDeniedResponse().GetStatus().GetCode(); code != 200 {
		return fmt.Errorf("event %d was answered %d %s", i, code, res.GetDeniedResponse().GetBody())
	}
	return nil
}
