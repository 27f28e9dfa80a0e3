package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

const (
	// outboundID names the event, outboundEvent is what the app posts.
	outboundID    = "invoice_in_1042_paid"
	outboundEvent = `{"id": "` + outboundID + `", "type": "invoice.paid", "data": {"invoice": "in_1042", "total": 1e2}}`
	// outboundData is the part that the customer gets byte for byte.
	outboundData = `{"invoice": "in_1042", "total": 1e2}`
	// metadataURL is where a cloud keeps a machine's credentials: the address that a hostile customer would register.
	metadataURL = "https://169.254.169.254/latest/meta-data"
	// deliveryTimeout bounds three attempts with waits of 300 ms.
	deliveryTimeout = 15 * time.Second
)

// attempt is one row of the outbound table.
type attempt struct {
	answered          int
	signature, logged string
}

// tellOutbound plays the other half: the app posts an event and is done; the customer's server fails twice. It returns
// how many things are not as promised.
func tellOutbound(ctx context.Context, s *stack, out io.Writer) (broken int, err error) {
	fmt.Fprintf(out, "\nOutbound: the app posts an event to sidehook, sidehook signs it for the customer on %s\n", s.customer.addr)
	first, err := s.publish(ctx)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(out, "app posts %s\nsidehook answers %s\n", outboundEvent, first)
	broken += promise(out, "the event is accepted", strings.HasPrefix(first, "202 "))

	delivery, attempts, err := s.delivered(ctx)
	if err != nil {
		return broken, err
	}
	visits := s.customer.visits()
	want := []attempt{{500, "good", "server_error"}, {404, "good", "rejected"}, {200, "good", "delivered"}}
	if err := printAttempts(out, visits, attempts); err != nil {
		return broken, err
	}
	broken += promise(out, "three attempts, each signed, each in the log", matches(visits, attempts, want))
	broken += promise(out, "the delivery is DELIVERED", delivery.GetState() == egressv1.DeliveryState_DELIVERY_STATE_DELIVERED)
	broken += promise(out, "all under the same id, with the app's own bytes", sameEvent(visits))

	again, err := s.publish(ctx)
	if err != nil {
		return broken, err
	}
	fmt.Fprintf(out, "\napp posts the same event again\nsidehook answers %s\n", again)
	broken += promise(out, "the same answer, and nothing is sent", again == first && len(s.customer.visits()) == len(visits))

	refused, verdict, err := s.checkURL(ctx, metadataURL)
	if err != nil {
		return broken, err
	}
	fmt.Fprintf(out, "\nsidehook egress check %s\n%s", metadataURL, verdict)
	broken += promise(out, "the address is refused", refused)
	return broken, nil
}

// promise prints what is not as promised and counts it.
func promise(out io.Writer, what string, kept bool) int {
	if kept {
		return 0
	}
	fmt.Fprintf(out, "PROMISED: %s\n", what)
	return 1
}

// publish posts the event as any app does and returns status and answer.
func (s *stack) publish(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.intake+"/v1/events", strings.NewReader(outboundEvent))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.client.Do(req)
	if err != nil {
		return "", fmt.Errorf("post an event: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if err != nil {
		return "", fmt.Errorf("post an event: %w", err)
	}
	return strconv.Itoa(res.StatusCode) + " " + string(bytes.TrimSpace(text)), nil
}

// delivered waits until the event's delivery has ended and returns it with its attempts.
func (s *stack) delivered(ctx context.Context) (d *egressv1.Delivery, attempts []*egressv1.Attempt, err error) {
	ctx, cancel := context.WithTimeout(ctx, deliveryTimeout)
	defer cancel()
	ended := poll(ctx, func() bool {
		var res *connect.Response[egressv1.GetEventResponse]
		res, err = s.egress.GetEvent(ctx, connect.NewRequest(&egressv1.GetEventRequest{Id: outboundID}))
		if err != nil || len(res.Msg.GetDeliveries()) != 1 {
			return false
		}
		one := res.Msg.GetDeliveries()[0]
		d, attempts = one.GetDelivery(), one.GetAttempts()
		return d.GetEndTime() != nil
	})
	if !ended && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("wait for the delivery of %s: %w", outboundID, err)
	}
	return d, attempts, nil
}

// checkURL has the binary judge a URL as the address of an endpoint.
func (s *stack) checkURL(ctx context.Context, url string) (refused bool, verdict string, err error) {
	text, err := exec.CommandContext(ctx, s.binary, "egress", "check", url, "--config", s.config).CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if err != nil && !ok {
		return false, "", fmt.Errorf("sidehook egress check: %w", err)
	}
	return ok && exit.ExitCode() == 1, string(text), nil
}

func printAttempts(out io.Writer, visits []visit, attempts []*egressv1.Attempt) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\nATTEMPT\tCUSTOMER ANSWERED\tSIGNATURE\tLOGGED\tTOOK\tDIALLED")
	for i, v := range visits {
		logged := []string{"nothing", "", ""}
		if i < len(attempts) {
			a := attempts[i]
			logged = []string{a.GetOutcome(), a.GetTook().AsDuration().Round(10 * time.Microsecond).String(), a.GetIp()}
		}
		fmt.Fprintf(table, "%d\t%d\t%s\t%s\n", i+1, v.answered, v.signature, strings.Join(logged, "\t"))
	}
	return table.Flush()
}

func matches(visits []visit, attempts []*egressv1.Attempt, want []attempt) bool {
	if len(visits) != len(want) || len(attempts) != len(want) {
		return false
	}
	for i, w := range want {
		if (attempt{visits[i].answered, visits[i].signature, attempts[i].GetOutcome()}) != w {
			return false
		}
	}
	return true
}

// sameEvent reports whether every visit carried the app's id and, as they were posted, the app's bytes.
func sameEvent(visits []visit) bool {
	for _, v := range visits {
		if v.id != outboundID || !strings.Contains(v.body, outboundData) || v.body != visits[0].body {
			return false
		}
	}
	return true
}
