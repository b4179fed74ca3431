// How one asks for a sum, a difference, a product of {a} and {b}.
#pragma once

#include <string_view>

namespace k3::train {

inline constexpr std::string_view kSumQuestions[] = {
    "What is {a} + {b}?", "What is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b}", "{a} + {b} = ?", "{a}+{b}",
    "{a}+{b}=?", "{a} + {b} =", "What's {a} + {b}?", "what is {a}+{b}", "what is {a} + {b}", "Add {a} and {b}.",
    "Add {b} to {a}.", "How much is {a} plus {b}?", "How much is {a} + {b}?", "Calculate {a} + {b}.",
    "Compute {a} + {b}.", "Please compute {a} + {b}.", "What is the sum of {a} and {b}?",
    "Find the sum of {a} and {b}.", "Can you add {a} and {b}?", "Could you tell me what {a} plus {b} is?",
    "Tell me {a} + {b}.", "{a} plus {b}?", "{a} plus {b} equals what?", "Work out {a} + {b}.", "Solve: {a} + {b} =",
    "Find the total of {a} and {b}.", "If you add {b} to {a}, what do you get?", "Increase {a} by {b}.",
    "What number is {b} more than {a}?", "What do {a} and {b} make together?", "I want to know {a} + {b}.",
    "Hi, what is {a} + {b}?", "Hello! Can you work out {a} + {b} for me?", "Give me the result of {a} + {b}.",
    "What does {a} + {b} equal?", "Evaluate {a} + {b}.", "Quick question: {a} + {b}?",
    "Do you know what {a} + {b} is?", "What do you get when you add {a} and {b}?", "Sum: {a}, {b}", "{a}+{b}?",
    "{a} + {b}?", "what's {a} plus {b}", "What's {a} plus {b}?", "what's {a}+{b}", "What is {a}+{b}?",
    "{a} plus {b}", "{a} plus {b} =", "add {a} and {b}", "Please add {a} and {b}.", "Add {a} to {b}.",
    "Add {a} and {b}, please.", "Can you compute {a} + {b}?", "Can you calculate {a} plus {b}?",
    "How much is {a}+{b}?", "How much do {a} and {b} make?", "What is {a} and {b} together?",
    "What is the total of {a} and {b}?", "{a} and {b} make how much?", "Help me with {a} + {b}.",
    "Sum up {a} and {b}.", "Do the sum {a} + {b}.", "Answer this: {a} + {b}", "What comes out of {a} + {b}?",
    "I have to add {a} and {b}. What is the result?", "calculate {a}+{b}", "compute {a} + {b}",
    "Let us add {a} and {b}."};

inline constexpr std::string_view kDifferenceQuestions[] = {
    "What is {a} - {b}?", "What is {a} - {b}?", "What is {a} minus {b}?", "{a} - {b}", "{a} - {b} = ?", "{a}-{b}",
    "{a}-{b}=?", "{a} - {b} =", "What's {a} - {b}?", "what is {a}-{b}", "what is {a} - {b}",
    "Subtract {b} from {a}.", "Take {b} away from {a}.", "How much is {a} minus {b}?", "How much is {a} - {b}?",
    "Calculate {a} - {b}.", "Compute {a} - {b}.", "Please compute {a} - {b}.", "Find {a} minus {b}.",
    "Can you subtract {b} from {a}?", "Could you tell me what {a} minus {b} is?", "Tell me {a} - {b}.",
    "{a} minus {b}?", "{a} minus {b} equals what?", "Work out {a} - {b}.", "Solve: {a} - {b} =",
    "If you take {b} from {a}, what is left?", "Decrease {a} by {b}.", "What number is {b} less than {a}?",
    "I want to know {a} - {b}.", "Hi, what is {a} - {b}?", "Hello! Can you work out {a} - {b} for me?",
    "Give me the result of {a} - {b}.", "What does {a} - {b} equal?", "Evaluate {a} - {b}.",
    "Quick question: {a} - {b}?", "Do you know what {a} - {b} is?",
    "What do you get when you subtract {b} from {a}?", "Reduce {a} by {b}.", "{a}-{b}?", "{a} - {b}?",
    "what's {a} minus {b}", "What's {a} minus {b}?", "what's {a}-{b}", "What is {a}-{b}?", "{a} minus {b}",
    "{a} minus {b} =", "subtract {b} from {a}", "Please subtract {b} from {a}.", "Subtract {b} from {a}, please.",
    "Take {b} from {a}.", "Can you compute {a} - {b}?", "Can you calculate {a} minus {b}?", "How much is {a}-{b}?",
    "What is {a} take away {b}?", "What remains if you subtract {b} from {a}?",
    "How much is left if you take {b} from {a}?", "Help me with {a} - {b}.", "Do the subtraction {a} - {b}.",
    "Answer this: {a} - {b}", "What comes out of {a} - {b}?", "I have to subtract {b} from {a}. What is the result?",
    "calculate {a}-{b}", "compute {a} - {b}", "Start at {a} and go down by {b}."};

inline constexpr std::string_view kProductQuestions[] = {
    "What is {a} x {b}?", "What is {a} * {b}?", "What is {a} times {b}?", "{a} * {b}", "{a} x {b} = ?",
    "Multiply {a} by {b}.", "Calculate {a} * {b}.", "How much is {a} times {b}?",
    "What is the product of {a} and {b}?", "Compute {a} x {b}.", "{a}*{b}", "what's {a} times {b}?", "{a} x {b}?",
    "{a} times {b}", "What's {a} x {b}?", "what is {a}*{b}", "Multiply {a} and {b}.", "Can you multiply {a} by {b}?",
    "{a} times {b} equals what?"};

// Only where {a} is not the smaller one.
inline constexpr std::string_view kOrderedDifferenceQuestions[] = {
    "What is the difference between {a} and {b}?", "What is the difference of {a} and {b}?",
    "Find the difference between {a} and {b}.", "How much more is {a} than {b}?", "How much bigger is {a} than {b}?"};

}  // namespace k3::train
