package main

import (
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// attemptMessage is what attempts of both halves have in common.
type attemptMessage interface {
	GetNumber() int32
	GetStartTime() *timestamppb.Timestamp
	GetOutcome() string
	GetCounted() bool
	GetStatus() int32
	GetTook() *durationpb.Duration
	GetIp() string
	GetRetryAfter() *durationpb.Duration
	GetAnswer() []byte
	GetTruncated() bool
	GetDetail() string
}

// printAttempt prints an attempt in a line, and what the receiver said in one below it. trigger is of the enum.
func printAttempt(w io.Writer, a attemptMessage, trigger fmt.Stringer) error {
	words := []string{fmt.Sprintf("#%d", a.GetNumber()), timeText(a.GetStartTime()), a.GetOutcome()}
	if a.GetStatus() != 0 {
		words = append(words, fmt.Sprint(a.GetStatus()))
	}
	words = append(words, shortDuration(a.GetTook()))
	if a.GetIp() != "" {
		words = append(words, a.GetIp())
	}
	if a.GetRetryAfter() != nil {
		words = append(words, "retry after "+shortDuration(a.GetRetryAfter()))
	}
	if !a.GetCounted() && a.GetOutcome() != outcomeDelivered {
		words = append(words, "not counted")
	}
	if t := strings.TrimPrefix(trigger.String(), "ATTEMPT_TRIGGER_"); t != "SCHEDULE" {
		words = append(words, strings.ToLower(t))
	}
	if a.GetDetail() != "" {
		words = append(words, a.GetDetail())
	}
	if _, err := fmt.Fprintf(w, "  %s\n", printable(strings.Join(words, " "))); err != nil {
		return err
	}
	if len(a.GetAnswer()) == 0 {
		return nil
	}
	more := ""
	if a.GetTruncated() {
		more = " …"
	}
	_, err := fmt.Fprintf(w, "     %s%s\n", printable(string(a.GetAnswer())), more)
	return err
}
